-- What the summary turn of a head consists of, and how much of the context before it a commit has left as it was.
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "layout" jsonb;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "cached_tokens" bigint;--> statement-breakpoint

-- Counts follow another tokenizer.
DROP TRIGGER "compactions_written_once" ON "palimpsest"."compactions";--> statement-breakpoint
CREATE TRIGGER "compactions_written_once" BEFORE UPDATE OR DELETE ON "palimpsest"."compactions"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('head_tokens', 'snapshot_tokens', 'state_tokens', 'layout', 'workflow_id');
