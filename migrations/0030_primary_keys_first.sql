-- Until a table has statistics, several indexes seem equally good for a lookup by its key, and the planner takes the newest of
-- them. With sessions_in_order it would read all sessions of the tenant. So the primary keys become the newest indexes, while
-- there is nothing in them. A database with sessions has statistics.
DO $$
DECLARE
  key record;
  reference text;
  lost text[];
BEGIN
  IF EXISTS (SELECT FROM palimpsest.sessions) THEN RETURN; END IF;
  FOR key IN
    SELECT oid, conindid, conname, conrelid::regclass AS of, pg_get_constraintdef(oid) AS definition FROM pg_constraint
    WHERE connamespace = 'palimpsest'::regnamespace AND contype = 'p'
      AND EXISTS (SELECT FROM pg_index WHERE indrelid = conrelid AND indexrelid > conindid)
  LOOP
    lost := ARRAY(
      SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
      FROM pg_constraint WHERE contype = 'f' AND conindid = key.conindid);
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', key.of, key.conname);
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s', key.of, key.conname, key.definition);
    FOREACH reference IN ARRAY lost LOOP EXECUTE reference; END LOOP;
  END LOOP;
END $$;
