ALTER TABLE "palimpsest"."message_texts" ADD COLUMN "speaker" text;--> statement-breakpoint

-- Texts of before name no speaker: each session is indexed anew, after its next commit or with its next search.
TRUNCATE "palimpsest"."message_texts";--> statement-breakpoint
UPDATE "palimpsest"."sessions" SET indexed_through_seq = 0 WHERE indexed_through_seq > 0;
