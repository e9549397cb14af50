-- A transaction sees and writes the rows of the one tenant that it has named:
-- set_config('palimpsest.tenant', <tenant>, true). With no tenant named, there are no rows and inserts fail.
--
-- FORCE includes the owner of the tables. The owner alone has a second policy: with palimpsest.tenants = 'all' it works
-- on all tenants. Migrations set it, and so do the functions below, which run with the rights of the owner. The policy
-- asks IS NOT NULL, of which the planner expects every row; of an equality it would expect one in two hundred.
DO $$
DECLARE
  own text := $own$tenant_id = nullif(current_setting('palimpsest.tenant', true), '')$own$;
  everybody text := $all$nullif(current_setting('palimpsest.tenants', true), '') IS NOT NULL$all$;
  one regclass;
BEGIN
  FOR one IN
    SELECT c.oid FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'palimpsest'::regnamespace AND c.relkind IN ('r', 'p')
      AND a.attname = 'tenant_id' AND NOT a.attisdropped
  LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', one);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', one);
    EXECUTE format('CREATE POLICY one_tenant ON %s USING (%s) WITH CHECK (%s)', one, own, own);
    EXECUTE format('CREATE POLICY owner_across_tenants ON %s TO CURRENT_USER USING (%s) WITH CHECK (%s)', one, everybody, everybody);
  END LOOP;
END $$;--> statement-breakpoint

-- PostgreSQL applies a policy before every condition that might leak a row, and uses an index for such a condition no
-- longer. md5() is one; equality of texts is none.
DROP INDEX "palimpsest"."messages_answers";--> statement-breakpoint
CREATE INDEX "messages_answers" ON "palimpsest"."messages" USING btree ("tenant_id","session_id","answers") WHERE length(answers) <= 256;--> statement-breakpoint

-- Work across tenants: the only statements that see more than one. They return ids, counts and times. Only
-- palimpsest_maintenance may call them, except token_of (and the owner, where there are no roles). A function cannot carry the setting as
-- a SET clause: only a superuser may create such a function.

-- Sessions that wait without a workflow: the same number from every tenant that has some, longest waiting first, with at
-- most 10,000 tenants in one call. The recursion takes two probes of the partial index for each tenant. in_backfill: a
-- running backfill has selected the session or will select it, and has waited less than the day that it gives a model.
CREATE FUNCTION "palimpsest"."overdue_sessions"(most integer)
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
            AND s.live_tokens >= coalesce((b.request->'select'->>'minTokens')::bigint, 0)))
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
END $$;--> statement-breakpoint

-- The sweep's next look at these sessions: after the time that they have waited so far, at least a minute and at most an
-- hour; after a minute if they could not be told.
CREATE FUNCTION "palimpsest"."postpone_overdue"(tenants text[], sessions text[], told boolean)
  RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  UPDATE palimpsest.sessions s
    SET sweep_at = now() + CASE WHEN told THEN greatest(interval '1 minute', least(interval '1 hour', now() - overdue_at))
      ELSE interval '1 minute' END
    FROM unnest(tenants, sessions) AS swept (tenant_id, session_id)
    WHERE s.tenant_id = swept.tenant_id AND s.session_id = swept.session_id AND s.overdue_at <= now();
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

CREATE FUNCTION "palimpsest"."count_overdue"()
  RETURNS TABLE (sessions bigint, since timestamptz)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  RETURN QUERY
    SELECT count(*), min(overdue_at) FROM palimpsest.sessions WHERE sweep_at IS NOT NULL AND overdue_at <= now();
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

-- Jobs that need a running workflow, least recently updated first. A paused job waits for its operator.
CREATE FUNCTION "palimpsest"."open_backfills"(most integer)
  RETURNS TABLE (tenant text, job text)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  RETURN QUERY
    SELECT b.tenant_id, b.job FROM palimpsest.backfills b WHERE b.ended_at IS NULL AND b.state <> 'paused'
    ORDER BY b.updated_at LIMIT most;
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

-- Erasures never reported to Temporal, then those whose latest report is oldest.
CREATE FUNCTION "palimpsest"."pending_erasures"(most integer)
  RETURNS TABLE (tenant text, session text, erased_at timestamptz, generation integer, told_at timestamptz)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  RETURN QUERY
    SELECT e.tenant_id, e.session_id, e.erased_at, e.generation, e.told_at FROM palimpsest.erasures e
    ORDER BY e.told_at NULLS FIRST, e.erased_at LIMIT most;
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

-- The access that a token gives now. A request shows its token before its tenant is known, so palimpsest_app may call this one.
CREATE FUNCTION "palimpsest"."token_of"(hash bytea)
  RETURNS TABLE (tenant text, scopes text[])
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  RETURN QUERY
    SELECT t.tenant_id, t.scopes FROM palimpsest.api_tokens t
    WHERE t.sha256 = hash AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp());
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

REVOKE ALL ON FUNCTION
  "palimpsest"."overdue_sessions"(integer), "palimpsest"."postpone_overdue"(text[], text[], boolean),
  "palimpsest"."count_overdue"(), "palimpsest"."open_backfills"(integer), "palimpsest"."pending_erasures"(integer), "palimpsest"."token_of"(bytea),
  "palimpsest"."erase_only"(text, text), "palimpsest"."use_pgvector"()
  FROM PUBLIC;
