CREATE TABLE "palimpsest"."backfill_items" (
	"tenant_id" text NOT NULL,
	"job" text NOT NULL,
	"session_id" text NOT NULL,
	"state" text DEFAULT 'pending' NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"error_type" text,
	"error_message" text,
	"generation" integer,
	"tokens_before" bigint,
	"tokens_after" bigint,
	"model_calls" integer DEFAULT 0 NOT NULL,
	"model_input_tokens" bigint DEFAULT 0 NOT NULL,
	"model_output_tokens" bigint DEFAULT 0 NOT NULL,
	"cost" double precision,
	"started_at" timestamp with time zone,
	"ended_at" timestamp with time zone,
	CONSTRAINT "backfill_items_pk" PRIMARY KEY("tenant_id","job","session_id"),
	CONSTRAINT "backfill_items_attempts" CHECK (attempts >= 0)
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."backfills" (
	"tenant_id" text NOT NULL,
	"job" text NOT NULL,
	"request" jsonb NOT NULL,
	"state" text DEFAULT 'running' NOT NULL,
	"reason" text,
	"cursor" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp with time zone,
	CONSTRAINT "backfills_pk" PRIMARY KEY("tenant_id","job")
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."rate_buckets" (
	"name" text NOT NULL,
	"level" double precision NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "rate_buckets_pk" PRIMARY KEY("name")
);
--> statement-breakpoint
ALTER TABLE "palimpsest"."sessions" ADD COLUMN "format" text DEFAULT 'openai-chat' NOT NULL;--> statement-breakpoint
ALTER TABLE "palimpsest"."backfill_items" ADD CONSTRAINT "backfill_items_of_job" FOREIGN KEY ("tenant_id","job") REFERENCES "palimpsest"."backfills"("tenant_id","job") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "backfill_items_by_state" ON "palimpsest"."backfill_items" USING btree ("tenant_id","job","state","session_id");