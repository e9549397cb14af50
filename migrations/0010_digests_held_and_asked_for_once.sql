CREATE TABLE "palimpsest"."digest_flights" (
	"tenant_id" text NOT NULL,
	"key" text NOT NULL,
	"step" text NOT NULL,
	"attempt" integer NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"failure" jsonb,
	CONSTRAINT "digest_flights_pk" PRIMARY KEY("tenant_id","key")
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."digest_holds" (
	"tenant_id" text NOT NULL,
	"key" text NOT NULL,
	"session_id" text NOT NULL,
	"run_id" text NOT NULL,
	"held_until" timestamp with time zone NOT NULL,
	CONSTRAINT "digest_holds_pk" PRIMARY KEY("tenant_id","session_id","run_id","key")
);
--> statement-breakpoint
ALTER TABLE "palimpsest"."digest_holds" ADD CONSTRAINT "digest_holds_of_digest" FOREIGN KEY ("tenant_id","key") REFERENCES "palimpsest"."digests"("tenant_id","key") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "digest_holds_by_key" ON "palimpsest"."digest_holds" USING btree ("tenant_id","key");--> statement-breakpoint
CREATE INDEX "digest_holds_by_end" ON "palimpsest"."digest_holds" USING btree ("tenant_id","held_until");--> statement-breakpoint

-- A text stays as it was written. The session that paid for it may be erased while another is compacting with it: then
-- that one takes it over.
DROP TRIGGER "digests_text_written_once" ON "palimpsest"."digests";--> statement-breakpoint
CREATE TRIGGER "digests_text_written_once" BEFORE UPDATE ON "palimpsest"."digests"
  FOR EACH ROW EXECUTE FUNCTION "palimpsest"."written_once"('payer_session', 'payer_generation');
