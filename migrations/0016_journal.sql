-- What stands beside the notes in `journal` mode: rules, requests and questions in force.
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "state" text;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "state_tokens" integer DEFAULT 0 NOT NULL;
