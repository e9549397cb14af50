-- What the role of the application must not reach with SQL of its own.

-- Names without a schema are looked up in the caller's temporary schema first, so every function names where to look.
-- extra_float_digits: two numbers that differ must not print alike where rows are compared.
ALTER FUNCTION "palimpsest"."written_once"() SET search_path = pg_catalog, pg_temp;--> statement-breakpoint
ALTER FUNCTION "palimpsest"."written_once"() SET extra_float_digits = 3;--> statement-breakpoint
ALTER FUNCTION "palimpsest"."note_overdue"() SET search_path = pg_catalog, pg_temp;--> statement-breakpoint
ALTER FUNCTION "palimpsest"."erase_only"(text, text) SET search_path = pg_catalog, pg_temp;--> statement-breakpoint
ALTER FUNCTION "palimpsest"."numbers_of"(bytea) SET search_path = pg_catalog, pg_temp;--> statement-breakpoint

-- The driver reads 'infinity' as a number, and the work on all tenants compares times.
DO $$
DECLARE
  moment record;
BEGIN
  FOR moment IN
    SELECT c.relname AS "table", a.attname AS "column" FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'palimpsest'::regnamespace AND c.relkind = 'r'
      AND a.atttypid = 'timestamptz'::regtype AND a.attnum > 0 AND NOT a.attisdropped
  LOOP
    EXECUTE format('ALTER TABLE palimpsest.%I ADD CONSTRAINT %I CHECK (isfinite(%I))',
      moment."table", moment."table" || '_' || moment."column" || '_finite', moment."column");
  END LOOP;
END $$;--> statement-breakpoint
ALTER TABLE "palimpsest"."rate_buckets" ADD CONSTRAINT "rate_buckets_level_finite"
  CHECK (level > '-infinity' AND level < 'infinity');--> statement-breakpoint
ALTER TABLE "palimpsest"."api_tokens" ADD CONSTRAINT "api_tokens_id" CHECK (octet_length(id) <= 512);--> statement-breakpoint
ALTER TABLE "palimpsest"."backfills" ADD CONSTRAINT "backfills_job" CHECK (octet_length(job) <= 512);--> statement-breakpoint
-- A JavaScript string holds 512 MB.
ALTER TABLE "palimpsest"."messages" ADD CONSTRAINT "messages_body_size" CHECK (octet_length(body) <= 268435456);--> statement-breakpoint

-- A session is swept only if it is overdue and not before, also when a row is inserted: the sweep postpones what it has seen.
DROP TRIGGER "sessions_overdue" ON "palimpsest"."sessions";--> statement-breakpoint
CREATE TRIGGER "sessions_overdue" BEFORE UPDATE ON "palimpsest"."sessions"
  FOR EACH ROW WHEN (NEW.overdue_at IS NOT NULL OR OLD.overdue_at IS NOT NULL OR NEW.sweep_at IS NOT NULL)
  EXECUTE FUNCTION "palimpsest"."note_overdue"();--> statement-breakpoint
CREATE TRIGGER "sessions_overdue_insert" BEFORE INSERT ON "palimpsest"."sessions"
  FOR EACH ROW WHEN (NEW.overdue_at IS NOT NULL OR NEW.sweep_at IS NOT NULL)
  EXECUTE FUNCTION "palimpsest"."note_overdue"();--> statement-breakpoint
UPDATE "palimpsest"."sessions" SET sweep_at = overdue_at WHERE sweep_at IS NOT NULL AND (overdue_at IS NULL OR sweep_at < overdue_at);--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD CONSTRAINT "sessions_sweep_at"
  CHECK (sweep_at IS NULL OR sweep_at >= overdue_at AND overdue_at IS NOT NULL);--> statement-breakpoint

-- As before, but a request that is no valid one counts as one without `minTokens`.
CREATE OR REPLACE FUNCTION "palimpsest"."overdue_sessions"(most integer)
  RETURNS TABLE (tenant text, session text, in_backfill boolean)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  RETURN QUERY
    WITH RECURSIVE owner (tenant_id) AS (
      (SELECT tenant_id FROM palimpsest.sessions WHERE sweep_at IS NOT NULL ORDER BY tenant_id LIMIT 1)
      UNION ALL
      SELECT (SELECT s.tenant_id FROM palimpsest.sessions s
              WHERE s.sweep_at IS NOT NULL AND s.tenant_id > owner.tenant_id ORDER BY s.tenant_id LIMIT 1)
      FROM owner WHERE owner.tenant_id IS NOT NULL
    ), owners AS (
      SELECT tenant_id FROM owner WHERE tenant_id IS NOT NULL
        AND EXISTS (SELECT FROM palimpsest.sessions s WHERE s.tenant_id = owner.tenant_id AND s.sweep_at <= now())
      LIMIT 10000
    )
    SELECT s.tenant_id, s.session_id,
      s.overdue_at > now() - interval '1 day' AND EXISTS (
        SELECT FROM palimpsest.backfills b
        WHERE b.tenant_id = s.tenant_id AND b.ended_at IS NULL AND b.state = 'running' AND (
          EXISTS (SELECT FROM palimpsest.backfill_items i
                  WHERE i.tenant_id = b.tenant_id AND i.job = b.job AND i.session_id = s.session_id
                    AND i.state IN ('pending', 'running'))
          OR b.selecting AND (b.cursor IS NULL OR s.session_id > b.cursor)
            AND starts_with(s.session_id, coalesce(b.request->'select'->>'prefix', ''))
            AND s.format = coalesce(b.request->'select'->>'format', s.format)
            AND s.live_tokens >= CASE jsonb_typeof(b.request->'select'->'minTokens')
              WHEN 'number' THEN (b.request->'select'->>'minTokens')::float8 ELSE 0 END))
    FROM owners CROSS JOIN LATERAL (
      SELECT waiting.*, row_number() OVER (ORDER BY sweep_at) AS place FROM (
        SELECT * FROM palimpsest.sessions of_owner
        WHERE of_owner.tenant_id = owners.tenant_id AND of_owner.sweep_at <= now()
        ORDER BY of_owner.sweep_at
        LIMIT greatest(1, ceil(most::numeric / (SELECT count(*) FROM owners)))
      ) waiting
    ) s
    ORDER BY s.place, s.sweep_at
    LIMIT most;
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;
