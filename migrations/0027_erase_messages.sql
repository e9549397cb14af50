-- Erasing single messages. A tombstone replaces the body; the hash of what was received stays.
ALTER TABLE "palimpsest"."messages" ADD COLUMN "received_sha256" "bytea";--> statement-breakpoint
ALTER TABLE "palimpsest"."messages" ADD COLUMN "erased_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "palimpsest"."messages" ADD COLUMN "erased_reason" text;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "former_incarnations" uuid[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
-- Rows from before have nulls only, so the constraint need not read them.
ALTER TABLE "palimpsest"."messages" ADD CONSTRAINT "messages_erased" CHECK ((erased_at is null or received_sha256 is not null) and (erased_reason is null or erased_at is not null)) NOT VALID;--> statement-breakpoint

-- For the rest of its transaction, texts of this one session may be replaced, by a role that may also delete them.
CREATE FUNCTION "palimpsest"."rewrite_only"(tenant text, session text) RETURNS void LANGUAGE sql
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT set_config('palimpsest.rewriting', json_build_array(tenant, session)::text, true)
$$;--> statement-breakpoint
REVOKE ALL ON FUNCTION "palimpsest"."rewrite_only"(text, text) FROM PUBLIC;--> statement-breakpoint

CREATE OR REPLACE FUNCTION "palimpsest"."written_once"() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET extra_float_digits = 3 AS $$
DECLARE
  mutable text[] := coalesce(TG_ARGV, '{}');
  -- What an erasure of messages replaces: never a range, a position, a role or a link.
  texts text[] := CASE TG_TABLE_NAME
    WHEN 'messages' THEN ARRAY['body', 'sha256', 'received_sha256', 'erased_at', 'erased_reason', 'tokens']
    WHEN 'turns' THEN ARRAY['usage']
    WHEN 'archive_parts' THEN ARRAY['bytes', 'tokens']
    WHEN 'compactions' THEN ARRAY['method', 'fallback', 'layers', 'state', 'state_tokens', 'snapshot', 'snapshot_tokens',
      'ledger', 'pinned', 'carried_seq', 'head', 'head_tokens', 'layout']
    END;
BEGIN
  IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - mutable = to_jsonb(OLD) - mutable THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'DELETE' AND TG_LEVEL = 'ROW' THEN
    IF current_setting('palimpsest.erasing', true) = json_build_array(OLD.tenant_id, OLD.session_id)::text THEN
      RETURN OLD;
    END IF;
  END IF;
  IF TG_OP = 'UPDATE' AND texts IS NOT NULL THEN
    IF current_setting('palimpsest.rewriting', true) = json_build_array(OLD.tenant_id, OLD.session_id)::text
      AND has_table_privilege(current_user, TG_RELID, 'DELETE')
      AND to_jsonb(NEW) - texts = to_jsonb(OLD) - texts
    THEN
      -- The hash of what was received is kept, whatever else is replaced.
      IF TG_TABLE_NAME <> 'messages' OR
        to_jsonb(NEW)->>'received_sha256' = coalesce(to_jsonb(OLD)->>'received_sha256', to_jsonb(OLD)->>'sha256')
      THEN
        RETURN NEW;
      END IF;
    END IF;
  END IF;
  RAISE EXCEPTION 'palimpsest.% is written once: % refused', TG_TABLE_NAME, TG_OP
    USING ERRCODE = 'restrict_violation',
      HINT = 'The log, its compactions and their archive are append-only.';
END $$;
