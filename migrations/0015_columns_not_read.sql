-- Nothing reads these; a later migration drops them.
ALTER TABLE "palimpsest"."digests" ALTER COLUMN "kind" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."digests" ALTER COLUMN "model" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."digests" ALTER COLUMN "prompt_version" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."digests" ALTER COLUMN "ms" DROP NOT NULL;
