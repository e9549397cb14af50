CREATE TABLE "palimpsest"."erasures" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"erased_at" timestamp with time zone NOT NULL,
	"generation" integer NOT NULL,
	"told_at" timestamp with time zone,
	CONSTRAINT "erasures_pk" PRIMARY KEY("tenant_id","session_id")
);
--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "incarnation" uuid DEFAULT gen_random_uuid() NOT NULL;--> statement-breakpoint
CREATE INDEX "sessions_by_origin" ON "palimpsest"."sessions" USING btree ("tenant_id",(fork_of->>'session')) WHERE fork_of is not null;--> statement-breakpoint

-- What a fork takes over may name the session that it was taken from; when that is erased, the name goes.
DROP TRIGGER "compactions_written_once" ON "palimpsest"."compactions";--> statement-breakpoint
CREATE TRIGGER "compactions_written_once" BEFORE UPDATE OR DELETE ON "palimpsest"."compactions"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('head_tokens', 'snapshot_tokens', 'workflow_id');--> statement-breakpoint
DROP TRIGGER "digests_text_written_once" ON "palimpsest"."digests";--> statement-breakpoint
CREATE TRIGGER "digests_text_written_once" BEFORE UPDATE ON "palimpsest"."digests"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('payer_session', 'payer_generation');--> statement-breakpoint

-- What earlier erasures left: names of sessions that are gone, or of those that forks come from.
UPDATE "palimpsest"."compactions" c SET workflow_id = ''
  FROM "palimpsest"."sessions" s
  WHERE s.tenant_id = c.tenant_id AND s.session_id = c.session_id AND s.fork_of IS NOT NULL
    AND c.created_at < s.created_at AND c.workflow_id <> '';--> statement-breakpoint
UPDATE "palimpsest"."sessions" f SET fork_of = NULL
  WHERE f.fork_of IS NOT NULL AND NOT EXISTS (
    SELECT FROM "palimpsest"."sessions" o WHERE o.tenant_id = f.tenant_id AND o.session_id = f.fork_of->>'session');--> statement-breakpoint
UPDATE "palimpsest"."digests" d
  SET payer_generation = 0, payer_session = coalesce((
    SELECT min(used.session_id) FROM "palimpsest"."compaction_digests" used
    WHERE used.tenant_id = d.tenant_id AND used.key = d.key), '')
  WHERE NOT EXISTS (
    SELECT FROM "palimpsest"."sessions" s WHERE s.tenant_id = d.tenant_id AND s.session_id = d.payer_session);--> statement-breakpoint
UPDATE "palimpsest"."backfills" b SET "cursor" = (
    SELECT max(i.session_id) FROM "palimpsest"."backfill_items" i
    WHERE i.tenant_id = b.tenant_id AND i.job = b.job AND i.session_id < b."cursor")
  WHERE b."cursor" IS NOT NULL AND NOT EXISTS (
    SELECT FROM "palimpsest"."sessions" s WHERE s.tenant_id = b.tenant_id AND s.session_id = b."cursor");
