CREATE TABLE "palimpsest"."api_tokens" (
	"tenant_id" text NOT NULL,
	"id" text NOT NULL,
	"name" text NOT NULL,
	"sha256" "bytea" NOT NULL,
	"scopes" text[] NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone,
	"revoked_at" timestamp with time zone,
	CONSTRAINT "api_tokens_pk" PRIMARY KEY("tenant_id","id"),
	CONSTRAINT "api_tokens_sha256" CHECK (octet_length(sha256) = 32)
);
--> statement-breakpoint
CREATE UNIQUE INDEX "api_tokens_by_hash" ON "palimpsest"."api_tokens" USING btree ("sha256");
