-- Sessions and tenants of before `redact` was on by default stay without it until their policy is replaced.
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "begun_redact" boolean DEFAULT false;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ALTER COLUMN "begun_redact" DROP DEFAULT;--> statement-breakpoint
ALTER TABLE "palimpsest"."tenants" ADD COLUMN "begun_redact" boolean;--> statement-breakpoint
INSERT INTO "palimpsest"."tenants" ("tenant_id", "policy", "policy_version")
  SELECT DISTINCT "tenant_id", '{}', 0 FROM "palimpsest"."sessions" ON CONFLICT DO NOTHING;--> statement-breakpoint
UPDATE "palimpsest"."tenants" SET "begun_redact" = false;
