-- Which token made a token. Rows from before, and tokens made on the command line, have none.
ALTER TABLE "palimpsest"."api_tokens" ADD COLUMN "created_by" text;--> statement-breakpoint
-- No row has a value yet, so the constraint need not read them.
ALTER TABLE "palimpsest"."api_tokens" ADD CONSTRAINT "api_tokens_created_by" CHECK (octet_length(created_by) <= 512);
