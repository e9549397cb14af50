ALTER TABLE "palimpsest"."sessions" ADD COLUMN "overdue_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "sweep_at" timestamp with time zone;--> statement-breakpoint
CREATE INDEX "sessions_to_sweep" ON "palimpsest"."sessions" USING btree ("tenant_id","sweep_at","overdue_at") WHERE sweep_at is not null;--> statement-breakpoint

-- A session that has reached no mark, is paused or is closed asks for nothing, whoever wrote the row. A new moment from
-- which it is overdue is also the moment at which the sweep looks at it.
CREATE FUNCTION "palimpsest"."note_overdue"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.paused_at IS NOT NULL OR NEW.closed_at IS NOT NULL OR NOT (
    coalesce(NEW.live_tokens >= NEW.measure_at_tokens, false) OR
    coalesce(NEW.live_messages >= NEW.measure_at_messages, false)
  ) THEN
    NEW.overdue_at := NULL;
    NEW.sweep_at := NULL;
  ELSIF NEW.overdue_at IS DISTINCT FROM OLD.overdue_at THEN
    NEW.sweep_at := NEW.overdue_at;
  END IF;
  RETURN NEW;
END $$;--> statement-breakpoint

CREATE TRIGGER "sessions_overdue" BEFORE UPDATE ON "palimpsest"."sessions"
  FOR EACH ROW WHEN (NEW.overdue_at IS NOT NULL OR OLD.overdue_at IS NOT NULL)
  EXECUTE FUNCTION "palimpsest"."note_overdue"();--> statement-breakpoint

-- What waits already is found by the first sweeps; imported sessions wait for a backfill.
UPDATE "palimpsest"."sessions" s SET overdue_at = now()
WHERE (live_tokens >= measure_at_tokens OR live_messages >= measure_at_messages)
  AND NOT EXISTS (
    SELECT FROM "palimpsest"."turns" t
    WHERE t.tenant_id = s.tenant_id AND t.session_id = s.session_id
      AND t.through_seq = s.next_seq - 1 AND starts_with(t.turn_id, 'import-')
  );
