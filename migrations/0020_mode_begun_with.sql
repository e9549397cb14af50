-- Sessions begun before `journal` was the default of `summary.mode` keep `incremental` until their policy is replaced.
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "begun_mode" text DEFAULT 'incremental';--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ALTER COLUMN "begun_mode" DROP DEFAULT;
