CREATE TABLE "palimpsest"."message_vectors" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"model" text NOT NULL,
	"seq" integer NOT NULL,
	"chunk" integer NOT NULL,
	"slice" integer NOT NULL,
	"char_offset" integer NOT NULL,
	"numbers" "bytea" NOT NULL,
	CONSTRAINT "message_vectors_pk" PRIMARY KEY("tenant_id","session_id","model","seq","chunk")
);
--> statement-breakpoint
ALTER TABLE "palimpsest"."message_vectors" ADD CONSTRAINT "message_vectors_of_message" FOREIGN KEY ("tenant_id","session_id","seq") REFERENCES "palimpsest"."messages"("tenant_id","session_id","seq") ON DELETE no action ON UPDATE no action;--> statement-breakpoint

-- Vectors do not compress; those of up to 4,000 dimensions stay in their rows.
ALTER TABLE "palimpsest"."message_vectors" ALTER COLUMN "numbers" SET STORAGE EXTERNAL;--> statement-breakpoint
ALTER TABLE "palimpsest"."message_vectors" SET (toast_tuple_target = 4080);--> statement-breakpoint

CREATE FUNCTION "palimpsest"."numbers_of"(bytes bytea) RETURNS real[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT array_agg((CASE WHEN byte > 127 THEN byte - 256 ELSE byte END)::real ORDER BY place)
  FROM (SELECT place, get_byte(bytes, place) AS byte FROM generate_series(0, length(bytes) - 1) place) read
$$;--> statement-breakpoint

-- Keeps the vectors in the form of pgvector as well, once the extension is there. Each migration asks for it.
CREATE FUNCTION "palimpsest"."use_pgvector"() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  place text := (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector');
BEGIN
  IF place IS NULL THEN RETURN false; END IF;
  EXECUTE format('ALTER TABLE palimpsest.message_vectors ADD COLUMN IF NOT EXISTS embedding %1$I.vector
    GENERATED ALWAYS AS (palimpsest.numbers_of(numbers)::%1$I.vector) STORED', place);
  RETURN true;
END $$;
