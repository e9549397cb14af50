ALTER TABLE "palimpsest"."message_texts" ADD COLUMN "words" "tsvector" NOT NULL;--> statement-breakpoint

-- Substrings are found by reading through a session's texts: lz4 reads about three times as fast.
DO $$
BEGIN
  ALTER TABLE "palimpsest"."message_texts" ALTER COLUMN "body" SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
  RAISE NOTICE 'this server has no lz4: texts are compressed with pglz';
END $$;
