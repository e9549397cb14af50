CREATE INDEX "sessions_in_order" ON "palimpsest"."sessions" USING btree ("tenant_id",session_id collate "C");--> statement-breakpoint

-- An owner may have a session erased. For the rest of its transaction, rows of that one session may be deleted, whole
-- rows only: nothing written once can be changed, and nothing of another session can go.
CREATE FUNCTION "palimpsest"."erase_only"(tenant text, session text) RETURNS void LANGUAGE sql AS $$
  SELECT set_config('palimpsest.erasing', json_build_array(tenant, session)::text, true)
$$;--> statement-breakpoint

CREATE OR REPLACE FUNCTION "palimpsest"."written_once"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  mutable text[] := coalesce(TG_ARGV, '{}');
BEGIN
  IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - mutable = to_jsonb(OLD) - mutable THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'DELETE' AND TG_LEVEL = 'ROW' THEN
    IF current_setting('palimpsest.erasing', true) = json_build_array(OLD.tenant_id, OLD.session_id)::text THEN
      RETURN OLD;
    END IF;
  END IF;
  RAISE EXCEPTION 'palimpsest.% is written once: % refused', TG_TABLE_NAME, TG_OP
    USING ERRCODE = 'restrict_violation',
      HINT = 'The log, its compactions and their archive are append-only.';
END $$;
