CREATE SCHEMA IF NOT EXISTS "palimpsest";
--> statement-breakpoint
CREATE TABLE "palimpsest"."archive_parts" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"part" integer NOT NULL,
	"generation" integer NOT NULL,
	"from_seq" integer NOT NULL,
	"through_seq" integer NOT NULL,
	"messages" integer NOT NULL,
	"tokens" bigint NOT NULL,
	"bytes" bigint NOT NULL,
	"sha256" "bytea" NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "archive_parts_pk" PRIMARY KEY("tenant_id","session_id","part"),
	CONSTRAINT "archive_parts_generation" UNIQUE("tenant_id","session_id","generation"),
	CONSTRAINT "archive_parts_whole" CHECK (through_seq >= from_seq and messages = through_seq - from_seq + 1)
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."compaction_digests" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"generation" integer NOT NULL,
	"position" integer NOT NULL,
	"key" text NOT NULL,
	CONSTRAINT "compaction_digests_pk" PRIMARY KEY("tenant_id","session_id","generation","position")
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."compactions" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"generation" integer NOT NULL,
	"parent_generation" integer,
	"parent_through_seq" integer,
	"from_seq" integer NOT NULL,
	"through_seq" integer NOT NULL,
	"reason" text NOT NULL,
	"method" text NOT NULL,
	"snapshot" text,
	"snapshot_tokens" integer DEFAULT 0 NOT NULL,
	"ledger" text,
	"carried_seq" integer,
	"head" text,
	"head_tokens" integer[] DEFAULT '{}' NOT NULL,
	"coverage" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"tokens_before" bigint DEFAULT 0 NOT NULL,
	"tokens_after" bigint DEFAULT 0 NOT NULL,
	"evicted" integer DEFAULT 0 NOT NULL,
	"chunks" integer DEFAULT 0 NOT NULL,
	"model" text,
	"prompt_version" integer,
	"model_calls" integer DEFAULT 0 NOT NULL,
	"model_input_tokens" bigint DEFAULT 0 NOT NULL,
	"model_output_tokens" bigint DEFAULT 0 NOT NULL,
	"model_ms" integer DEFAULT 0 NOT NULL,
	"overhead_ms" integer DEFAULT 0 NOT NULL,
	"archive_part" integer,
	"parts" integer DEFAULT 0 NOT NULL,
	"workflow_id" text DEFAULT '' NOT NULL,
	"run_id" text DEFAULT '' NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "compactions_pk" PRIMARY KEY("tenant_id","session_id","generation"),
	CONSTRAINT "compactions_through" UNIQUE("tenant_id","session_id","generation","through_seq"),
	CONSTRAINT "compactions_range" UNIQUE("tenant_id","session_id","generation","from_seq","through_seq"),
	CONSTRAINT "compactions_run" UNIQUE("tenant_id","session_id","run_id"),
	CONSTRAINT "compactions_follow_parent" CHECK (case when generation = 0
        then parent_generation is null and parent_through_seq is null and from_seq = 1 and through_seq = 0
        else parent_generation is not null and parent_through_seq is not null
          and generation > parent_generation and from_seq = parent_through_seq + 1 and through_seq >= parent_through_seq
        end),
	CONSTRAINT "compactions_archive_what_they_evict" CHECK ((archive_part is null) = (through_seq < from_seq)),
	CONSTRAINT "compactions_snapshot_not_empty" CHECK (snapshot is null or snapshot ~ '[^[:space:]]'),
	CONSTRAINT "compactions_evict_by_summary" CHECK (through_seq < from_seq or (snapshot is not null and head is not null))
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."digests" (
	"tenant_id" text NOT NULL,
	"key" text NOT NULL,
	"kind" text NOT NULL,
	"text" text NOT NULL,
	"tokens" integer NOT NULL,
	"model" text NOT NULL,
	"prompt_version" integer NOT NULL,
	"calls" integer NOT NULL,
	"input_tokens" bigint NOT NULL,
	"output_tokens" bigint NOT NULL,
	"ms" integer NOT NULL,
	"payer_session" text NOT NULL,
	"payer_generation" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "digests_pk" PRIMARY KEY("tenant_id","key"),
	CONSTRAINT "digests_not_empty" CHECK (text ~ '[^[:space:]]')
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."messages" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"seq" integer NOT NULL,
	"turn_id" text NOT NULL,
	"role" text NOT NULL,
	"calls" text,
	"answers" text,
	"empty" boolean NOT NULL,
	"tokens" integer NOT NULL,
	"sha256" "bytea" NOT NULL,
	"body" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "messages_pk" PRIMARY KEY("tenant_id","session_id","seq"),
	CONSTRAINT "messages_seq" CHECK (seq >= 1),
	CONSTRAINT "messages_tokens" CHECK (tokens >= 0)
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."reductions" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"generation" integer NOT NULL,
	"budget" integer NOT NULL,
	"position" integer NOT NULL,
	"from_seq" integer NOT NULL,
	"through_seq" integer NOT NULL,
	"kind" text NOT NULL,
	"body" text NOT NULL,
	"tokens" integer NOT NULL,
	"at_seq" integer NOT NULL,
	"policy_version" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "reductions_pk" PRIMARY KEY("tenant_id","session_id","generation","budget","position"),
	CONSTRAINT "reductions_range" CHECK (from_seq >= 1 and through_seq >= from_seq)
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."sessions" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"policy" text NOT NULL,
	"policy_version" integer NOT NULL,
	"tokenizer" text NOT NULL,
	"budget" integer NOT NULL,
	"next_seq" integer DEFAULT 1 NOT NULL,
	"system_through_seq" integer DEFAULT 0 NOT NULL,
	"generation" integer DEFAULT 0 NOT NULL,
	"through_seq" integer DEFAULT 0 NOT NULL,
	"live_tokens" bigint DEFAULT 0 NOT NULL,
	"live_messages" bigint DEFAULT 0 NOT NULL,
	"measure_at_tokens" bigint,
	"measure_at_messages" bigint,
	"exhausted" jsonb,
	"failures" integer DEFAULT 0 NOT NULL,
	"retry_at" timestamp with time zone,
	"last_error" jsonb,
	"closed_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "sessions_pk" PRIMARY KEY("tenant_id","session_id"),
	CONSTRAINT "sessions_counters" CHECK (live_tokens >= 0 and live_messages >= 0 and next_seq >= 1),
	CONSTRAINT "sessions_head_within_log" CHECK (through_seq < next_seq and system_through_seq < next_seq)
);
--> statement-breakpoint
CREATE TABLE "palimpsest"."turns" (
	"tenant_id" text NOT NULL,
	"session_id" text NOT NULL,
	"turn_id" text NOT NULL,
	"from_seq" integer NOT NULL,
	"through_seq" integer NOT NULL,
	"sha256" "bytea" NOT NULL,
	"usage" jsonb,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "turns_pk" PRIMARY KEY("tenant_id","session_id","turn_id"),
	CONSTRAINT "turns_from_seq" UNIQUE("tenant_id","session_id","from_seq"),
	CONSTRAINT "turns_range" CHECK (from_seq >= 1 and through_seq >= from_seq)
);
--> statement-breakpoint
ALTER TABLE "palimpsest"."archive_parts" ADD CONSTRAINT "archive_parts_of_compaction" FOREIGN KEY ("tenant_id","session_id","generation","from_seq","through_seq") REFERENCES "palimpsest"."compactions"("tenant_id","session_id","generation","from_seq","through_seq") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."archive_parts" ADD CONSTRAINT "archive_parts_last_message" FOREIGN KEY ("tenant_id","session_id","through_seq") REFERENCES "palimpsest"."messages"("tenant_id","session_id","seq") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."compaction_digests" ADD CONSTRAINT "compaction_digests_of_compaction" FOREIGN KEY ("tenant_id","session_id","generation") REFERENCES "palimpsest"."compactions"("tenant_id","session_id","generation") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."compaction_digests" ADD CONSTRAINT "compaction_digests_referenced" FOREIGN KEY ("tenant_id","key") REFERENCES "palimpsest"."digests"("tenant_id","key") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD CONSTRAINT "compactions_of_session" FOREIGN KEY ("tenant_id","session_id") REFERENCES "palimpsest"."sessions"("tenant_id","session_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD CONSTRAINT "compactions_parent" FOREIGN KEY ("tenant_id","session_id","parent_generation","parent_through_seq") REFERENCES "palimpsest"."compactions"("tenant_id","session_id","generation","through_seq") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."compactions" ADD CONSTRAINT "compactions_carried" FOREIGN KEY ("tenant_id","session_id","carried_seq") REFERENCES "palimpsest"."messages"("tenant_id","session_id","seq") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."messages" ADD CONSTRAINT "messages_of_turn" FOREIGN KEY ("tenant_id","session_id","turn_id") REFERENCES "palimpsest"."turns"("tenant_id","session_id","turn_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."reductions" ADD CONSTRAINT "reductions_of_compaction" FOREIGN KEY ("tenant_id","session_id","generation") REFERENCES "palimpsest"."compactions"("tenant_id","session_id","generation") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "palimpsest"."turns" ADD CONSTRAINT "turns_of_session" FOREIGN KEY ("tenant_id","session_id") REFERENCES "palimpsest"."sessions"("tenant_id","session_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "compaction_digests_by_key" ON "palimpsest"."compaction_digests" USING btree ("tenant_id","key");