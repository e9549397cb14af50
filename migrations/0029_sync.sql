-- Lists of messages that callers hold, by digest: `sync` finds in them what is new.
CREATE TABLE "palimpsest"."known_lists" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"digest" "bytea" NOT NULL,
	"items" integer NOT NULL,
	"through_seq" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "known_lists_pk" PRIMARY KEY("tenant_id","session_id","digest"),
	CONSTRAINT "known_lists_values" CHECK (octet_length(digest) = 32 and items >= 1 and through_seq >= 0 and isfinite(created_at))
);
--> statement-breakpoint
ALTER TABLE "palimpsest"."known_lists" ADD CONSTRAINT "known_lists_of_session" FOREIGN KEY ("tenant_id","session_id") REFERENCES "palimpsest"."sessions"("tenant_id","session_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
DO $$
DECLARE
  own text := $own$tenant_id = nullif(current_setting('palimpsest.tenant', true), '')$own$;
  everybody text := $all$nullif(current_setting('palimpsest.tenants', true), '') IS NOT NULL$all$;
  one regclass := 'palimpsest.known_lists';
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', one);
  EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', one);
  EXECUTE format('CREATE POLICY one_tenant ON %s USING (%s) WITH CHECK (%s)', one, own, own);
  EXECUTE format('CREATE POLICY owner_across_tenants ON %s TO CURRENT_USER USING (%s) WITH CHECK (%s)', one, everybody, everybody);
END $$;--> statement-breakpoint
-- The fork with which `sync` goes on after an edit, named in the session whose id the caller uses.
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "continued_in" text;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD CONSTRAINT "sessions_continued_in" CHECK (octet_length(continued_in) between 1 and 512);
