-- What the log, the compactions and the archive promise, held by the database itself.

-- A body is what was received: its hash is checked by the server at every write.
ALTER TABLE "palimpsest"."messages" ADD CONSTRAINT "messages_sha256"
  CHECK (sha256 = sha256(convert_to(body, 'UTF8')));--> statement-breakpoint

-- The head always exists: a session points at one of its compactions, and at the seq which that one reached.
ALTER TABLE "palimpsest"."sessions" ADD CONSTRAINT "sessions_head"
  FOREIGN KEY ("tenant_id", "session_id", "generation", "through_seq")
  REFERENCES "palimpsest"."compactions" ("tenant_id", "session_id", "generation", "through_seq")
  DEFERRABLE INITIALLY DEFERRED;--> statement-breakpoint

-- With archive_parts_of_compaction: neither a compaction that evicts nor its archive part can exist without the other.
ALTER TABLE "palimpsest"."compactions" ADD CONSTRAINT "compactions_archive_part"
  FOREIGN KEY ("tenant_id", "session_id", "archive_part")
  REFERENCES "palimpsest"."archive_parts" ("tenant_id", "session_id", "part")
  DEFERRABLE INITIALLY DEFERRED;--> statement-breakpoint

-- Rows are written once. The columns named by the trigger may change: token counts, when a session is recounted with
-- another tokenizer.
CREATE FUNCTION "palimpsest"."written_once"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  mutable text[] := coalesce(TG_ARGV, '{}');
BEGIN
  IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - mutable = to_jsonb(OLD) - mutable THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'palimpsest.% is written once: % refused', TG_TABLE_NAME, TG_OP
    USING ERRCODE = 'restrict_violation',
      HINT = 'The log, its compactions and their archive are append-only.';
END $$;--> statement-breakpoint

CREATE TRIGGER "messages_written_once" BEFORE UPDATE OR DELETE ON "palimpsest"."messages"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('tokens');--> statement-breakpoint
CREATE TRIGGER "messages_never_truncated" BEFORE TRUNCATE ON "palimpsest"."messages"
  FOR EACH STATEMENT EXECUTE FUNCTION "palimpsest"."written_once"();--> statement-breakpoint
CREATE TRIGGER "turns_written_once" BEFORE UPDATE OR DELETE ON "palimpsest"."turns"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"();--> statement-breakpoint
CREATE TRIGGER "compactions_written_once" BEFORE UPDATE OR DELETE ON "palimpsest"."compactions"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('head_tokens', 'snapshot_tokens');--> statement-breakpoint
CREATE TRIGGER "archive_parts_written_once" BEFORE UPDATE OR DELETE ON "palimpsest"."archive_parts"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('tokens');--> statement-breakpoint
CREATE TRIGGER "digests_text_written_once" BEFORE UPDATE ON "palimpsest"."digests"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"();--> statement-breakpoint

-- lz4 reads about three times as fast as the built-in compression; not every build of the server has it.
DO $$
BEGIN
  ALTER TABLE "palimpsest"."messages" ALTER COLUMN "body" SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
  RAISE NOTICE 'this server has no lz4: bodies are compressed with pglz';
END $$;
