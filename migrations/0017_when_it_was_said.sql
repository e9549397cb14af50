-- When a message was said, as its turn or its log tells; null where nobody told.
ALTER TABLE "palimpsest"."messages" ADD COLUMN "at" timestamp with time zone;
