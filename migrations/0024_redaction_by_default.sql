-- Migrations see all tenants where row-level security separates them.
SELECT set_config('palimpsest.tenants', 'all', true);--> statement-breakpoint
-- Sessions and tenants of before `redact` was on by default stay without it until their policy is replaced.
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "begun_redact" boolean DEFAULT false;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ALTER COLUMN "begun_redact" DROP DEFAULT;--> statement-breakpoint
ALTER TABLE "palimpsest"."tenants" ADD COLUMN "begun_redact" boolean;--> statement-breakpoint
INSERT INTO "palimpsest"."tenants" ("tenant_id", "policy", "policy_version")
  SELECT DISTINCT "tenant_id", '{}', 0 FROM "palimpsest"."sessions" ON CONFLICT DO NOTHING;--> statement-breakpoint
UPDATE "palimpsest"."tenants" SET "begun_redact" = false;--> statement-breakpoint

-- Which redaction the texts have; it changes without them if another redaction finds nothing in them.
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "redaction" text DEFAULT '' NOT NULL;--> statement-breakpoint
DROP TRIGGER "compactions_written_once" ON "palimpsest"."compactions";--> statement-breakpoint
CREATE TRIGGER "compactions_written_once" BEFORE UPDATE OR DELETE ON "palimpsest"."compactions"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('head_tokens', 'snapshot_tokens', 'state_tokens', 'layout', 'workflow_id', 'redaction');--> statement-breakpoint

-- The tenants that begin sessions without redaction, or have sessions that began without it, with the number of these sessions.
-- Policies are stored as JSON without spaces; inside a text, the quotes of a field's name would be escaped.
CREATE FUNCTION "palimpsest"."tenants_without_redaction"()
  RETURNS TABLE (tenant text, sessions integer)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  RETURN QUERY
    WITH old AS (
      SELECT s.tenant_id, count(*)::integer AS begun FROM palimpsest.sessions s
      WHERE s.begun_redact = false AND s.policy NOT LIKE '%"redact":{%'
      GROUP BY s.tenant_id)
    SELECT tenant_id, coalesce(old.begun, 0)
    FROM (SELECT tenant_id, policy FROM palimpsest.tenants WHERE begun_redact = false) t
    FULL JOIN old USING (tenant_id)
    WHERE old.begun > 0 OR t.policy NOT LIKE '%"redact":%'
    ORDER BY tenant_id;
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint
REVOKE ALL ON FUNCTION "palimpsest"."tenants_without_redaction"() FROM PUBLIC;
