-- The operator's limits of a tenant, and what it has used. The role of the application may only read the limits.
CREATE TABLE "palimpsest"."tenant_limits" (
	"tenant_id" text NOT NULL,
	"limits" jsonb NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "tenant_limits_pk" PRIMARY KEY("tenant_id")
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."tenant_spend" (
	"tenant_id" text NOT NULL,
	"day" date NOT NULL,
	"cost" double precision NOT NULL,
	"tokens" bigint NOT NULL,
	CONSTRAINT "tenant_spend_pk" PRIMARY KEY("tenant_id","day")
);
--> statement-breakpoint
DO $$
DECLARE
  own text := $own$tenant_id = nullif(current_setting('palimpsest.tenant', true), '')$own$;
  everybody text := $all$nullif(current_setting('palimpsest.tenants', true), '') IS NOT NULL$all$;
  one regclass;
BEGIN
  FOREACH one IN ARRAY ARRAY['palimpsest.tenant_limits', 'palimpsest.tenant_spend']::regclass[]
  LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', one);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', one);
    EXECUTE format('CREATE POLICY one_tenant ON %s USING (%s) WITH CHECK (%s)', one, own, own);
    EXECUTE format('CREATE POLICY owner_across_tenants ON %s TO CURRENT_USER USING (%s) WITH CHECK (%s)', one, everybody, everybody);
  END LOOP;
END $$;--> statement-breakpoint

-- octet_length of a compressed body reads its stored length, not the body.
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "stored_bytes" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
UPDATE "palimpsest"."sessions" s SET "stored_bytes" = m.bytes
FROM (SELECT tenant_id, session_id, sum(octet_length(body)) AS bytes FROM "palimpsest"."messages" GROUP BY 1, 2) m
WHERE m.tenant_id = s.tenant_id AND m.session_id = s.session_id;--> statement-breakpoint

-- This month so far, as the compactions recorded it. Their cost follows the prices of policies.
INSERT INTO "palimpsest"."tenant_spend" (tenant_id, day, cost, tokens)
SELECT tenant_id, (created_at AT TIME ZONE 'UTC')::date,
  coalesce(sum(cost) FILTER (WHERE currency = 'USD'), 0), coalesce(sum(model_input_tokens + model_output_tokens), 0)
FROM "palimpsest"."compactions"
WHERE created_at >= date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
GROUP BY 1, 2;--> statement-breakpoint

-- The only ways to change limits. palimpsest_maintenance may call them (and the owner, where there are no roles).
CREATE FUNCTION "palimpsest"."change_tenant_limits"(tenant text, given jsonb, dropped text[])
  RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  INSERT INTO palimpsest.tenant_limits AS stored (tenant_id, limits) VALUES (tenant, given - dropped)
    ON CONFLICT (tenant_id) DO UPDATE SET limits = (stored.limits || given) - dropped, updated_at = now();
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

CREATE FUNCTION "palimpsest"."clear_tenant_limits"(tenant text)
  RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  DELETE FROM palimpsest.tenant_limits WHERE tenant_id = tenant;
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

-- What tenants have spent on this day and in this month (UTC), most first, and their own limits.
CREATE FUNCTION "palimpsest"."spend_of_tenants"(most integer)
  RETURNS TABLE (tenant text, limits jsonb, day_cost double precision, day_tokens numeric, month_cost double precision, month_tokens numeric)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('palimpsest.tenants', 'all', true);
  RETURN QUERY
    SELECT s.tenant_id, (SELECT l.limits FROM palimpsest.tenant_limits l WHERE l.tenant_id = s.tenant_id),
      coalesce(sum(s.cost) FILTER (WHERE s.day = (now() AT TIME ZONE 'UTC')::date), 0),
      coalesce(sum(s.tokens) FILTER (WHERE s.day = (now() AT TIME ZONE 'UTC')::date), 0),
      sum(s.cost), sum(s.tokens)
    FROM palimpsest.tenant_spend s
    WHERE s.day >= date_trunc('month', now() AT TIME ZONE 'UTC')
    GROUP BY 1 ORDER BY 5 DESC, 6 DESC LIMIT most;
  PERFORM set_config('palimpsest.tenants', '', true);
END $$;--> statement-breakpoint

REVOKE ALL ON FUNCTION
  "palimpsest"."change_tenant_limits"(text, jsonb, text[]), "palimpsest"."clear_tenant_limits"(text),
  "palimpsest"."spend_of_tenants"(integer)
  FROM PUBLIC;
