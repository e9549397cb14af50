ALTER TABLE "palimpsest"."backfills" ADD COLUMN "selecting" boolean DEFAULT true NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."backfills" ADD COLUMN "concurrency" integer DEFAULT 16 NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."backfills" ADD COLUMN "spend_limit" double precision;