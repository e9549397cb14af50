CREATE TABLE "palimpsest"."message_texts" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"seq" integer NOT NULL,
	"slice" integer NOT NULL,
	"role" text NOT NULL,
	"tool" text,
	"char_offset" integer NOT NULL,
	"body" text NOT NULL,
	CONSTRAINT "message_texts_pk" PRIMARY KEY("tenant_id","session_id","seq","slice")
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."tenants" (
	"tenant_id" text NOT NULL,
	"policy" text NOT NULL,
	"policy_version" integer NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "tenants_pk" PRIMARY KEY("tenant_id")
);
--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "fallback" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "layers" jsonb;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "restored" integer;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "cost" double precision;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "currency" text;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD COLUMN "pays_back_after" integer;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "tenant_policy_version" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "calibration" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "applied_factor" double precision DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "turns" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "mean_turn_tokens" double precision DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "indexed_through_seq" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "fork_of" jsonb;--> statement-breakpoint
ALTER TABLE "palimpsest"."message_texts" ADD CONSTRAINT "message_texts_of_message" FOREIGN KEY ("tenant_id","session_id","seq") REFERENCES "palimpsest"."messages"("tenant_id","session_id","seq") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "messages_answers" ON "palimpsest"."messages" USING btree ("tenant_id","session_id",md5(answers)) WHERE answers is not null;--> statement-breakpoint
ALTER TABLE "palimpsest"."reductions" DROP COLUMN "at_seq";--> statement-breakpoint
ALTER TABLE "palimpsest"."reductions" DROP COLUMN "policy_version";--> statement-breakpoint
-- The column holds the policy's layers from now on; what was there is the session's own.
UPDATE "palimpsest"."sessions" SET "policy" = '{"session":' || "policy" || '}';
