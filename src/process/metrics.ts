/**
 * Metrics for Prometheus. Labels are fixed words of the product (reasons, methods, failure types, routes), never ids of
 * tenants, sessions or runs, and never text.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { registeredModel } from '../tokens/windows.js';

export interface CompactionFigures {
  reason: string;
  method: string;
  tokensBefore: number;
  tokensAfter: number;
  evicted: number;
  overheadMs: number;
}

export interface ModelCallFigures {
  model: string;
  /** `ok`, or the type of the failure. */
  result: string;
  seconds: number;
  inputTokens?: number;
  outputTokens?: number;
  calls?: number;
}

export interface RequestFigures {
  method: string;
  route: string | null;
  status: number;
  seconds: number;
}

export interface GatewayFigures {
  upstream: string | null;
  endpoint: string | null;
  status: number;
  ownSeconds: number;
  bypassed: string | null;
  recovered: number;
}

/**
 * No compaction costs more in any currency. A larger sum comes from prices that are none, and the smaller costs of other
 * compactions could not be added to it exactly.
 */
const mostCost = 1_000_000;

const short = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const long = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 180, 600];
const sizes = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_000_000];

/** The metrics of one process: created once, then passed to activities, worker and API. */
export class Metrics {
  readonly registry = new Registry();
  readonly #configured: ReadonlySet<string>;

  readonly #compactions = this.#counter('compactions_total', 'Compactions that ended', [
    'outcome',
    'reason',
    'method',
  ]);
  readonly #failures = this.#counter(
    'compaction_failures_total',
    'Compactions that left the context unchanged',
    ['type'],
  );
  readonly #fallbacks = this.#counter(
    'compaction_fallbacks_total',
    'Compactions whose summary the fallback wrote because the model failed',
    ['type'],
  );
  readonly #chunksByRule = this.#counter(
    'chunks_by_rule_total',
    'Texts that the rules wrote because the model failed at them, by failure type',
    ['type'],
  );
  readonly #aheadFailures = this.#counter(
    'ahead_failures_total',
    'Failed attempts to write ahead of a compaction, by failure type; the compaction repeats the request',
    ['type'],
  );
  readonly #before = this.#histogram('compaction_tokens_before', 'Context tokens before', [], sizes);
  readonly #after = this.#histogram('compaction_tokens_after', 'Context tokens after', [], sizes);
  readonly #evicted = this.#counter('evicted_messages_total', 'Messages moved into the archive', []);
  readonly #overhead = this.#histogram(
    'compaction_overhead_seconds',
    'Wall time of a compaction without its model calls',
    [],
    long,
  );
  readonly #modelCalls = this.#counter('model_calls_total', 'Requests to the model endpoint', [
    'model',
    'result',
  ]);
  readonly #modelSeconds = this.#histogram(
    'model_answer_seconds',
    'Wall time of an answer, including repeated requests',
    ['model', 'result'],
    long,
  );
  readonly #modelTokens = this.#counter('model_tokens_total', 'Tokens processed by the model endpoint', [
    'model',
    'direction',
  ]);
  readonly #cost = this.#counter('model_cost_total', 'Cost of the summarizer, if policies set prices', [
    'currency',
  ]);
  readonly #digests = this.#counter(
    'digests_total',
    'Answers that compactions needed, found in the cache or requested',
    ['found'],
  );
  readonly #tokenWaits = this.#counter(
    'token_waits_total',
    'Model calls delayed because the tokens of this minute were used up',
    ['traffic'],
  );
  readonly #tokenWaitSeconds = this.#counter(
    'token_wait_seconds_total',
    'Seconds by which model calls were delayed',
    ['traffic'],
  );
  readonly #swept = this.#counter(
    'sessions_swept_total',
    'Waiting sessions found by the sweep: signalled, failed, or left to a backfill',
    ['result'],
  );
  readonly #activities = this.#histogram(
    'activity_seconds',
    'Wall time of one attempt of a step',
    ['activity', 'result'],
    long,
  );
  readonly #queueWaits = this.#histogram(
    'activity_queue_wait_seconds',
    'Time a step waited in its task queue for a free slot',
    ['activity', 'traffic'],
    long,
  );
  readonly #requests = this.#histogram(
    'http_request_seconds',
    'Wall time of an HTTP request',
    ['method', 'route', 'status'],
    short,
  );

  readonly #gatewayRequests = this.#counter(
    'gateway_requests_total',
    'Requests through the gateway, by the interface of those with a session',
    ['upstream', 'endpoint', 'status'],
  );
  readonly #gatewaySeconds = this.#histogram(
    'gateway_own_seconds',
    'Time until a request with a session went to the upstream',
    ['endpoint'],
    short,
  );
  readonly #gatewayBypassed = this.#counter(
    'gateway_bypassed_total',
    'Requests that passed without their session, by failure',
    ['type'],
  );
  readonly #gatewayRecovered = this.#counter(
    'gateway_recovery_calls_total',
    'Calls of recovery tools that the gateway answered',
    [],
  );

  readonly #refusals = this.#counter('api_refusals_total', 'Requests refused because of a limit', ['limit']);
  readonly #callsBeyondLimits = this.#counter(
    'model_calls_beyond_limits_total',
    "Model calls not made because of the operator's limits on their tenant, by limit",
    ['limit'],
  );

  /** `models`: the names that the deployment's configuration gives. */
  constructor(models: Iterable<string> = []) {
    this.#configured = new Set(models);
    collectDefaultMetrics({ register: this.registry });
  }

  compacted({ reason, method, tokensBefore, tokensAfter, evicted, overheadMs }: CompactionFigures): void {
    this.#compactions.inc({ outcome: 'committed', reason, method });
    this.#before.observe(tokensBefore);
    this.#after.observe(tokensAfter);
    this.#evicted.inc(evicted);
    this.#overhead.observe(overheadMs / 1000);
  }

  /** The fallback's summary was committed because of this failure. */
  fellBack(type: string): void {
    this.#fallbacks.inc({ type });
  }

  /** The rules wrote one text because of this failure. */
  chunkByRule(type: string): void {
    this.#chunksByRule.inc({ type });
  }

  /** An answer for a future compaction could not be obtained. */
  aheadFailed(type: string): void {
    this.#aheadFailures.inc({ type });
  }

  gaveUp(type: string): void {
    this.#compactions.inc({ outcome: 'failed', reason: '', method: '' });
    this.#failures.inc({ type });
  }

  /** `currency` is the name that a policy gives it. A cost that cannot be one is not counted. */
  spent(cost: number, currency: string): void {
    if (!(cost <= mostCost)) return;
    this.#cost.inc({ currency: /^[A-Z]{3}$/.test(currency) ? currency : 'other' }, cost);
  }

  modelAnswered({
    model,
    result,
    seconds,
    inputTokens = 0,
    outputTokens = 0,
    calls = 1,
  }: ModelCallFigures): void {
    const labels = { model: this.#known(model), result };
    this.#modelCalls.inc(labels, calls);
    this.#modelSeconds.observe(labels, seconds);
    this.#modelTokens.inc({ model: labels.model, direction: 'input' }, inputTokens);
    this.#modelTokens.inc({ model: labels.model, direction: 'output' }, outputTokens);
  }

  digest(found: boolean): void {
    this.#digests.inc({ found: found ? 'cache' : 'asked' });
  }

  tokenWait(backfill: boolean, waitMs: number): void {
    const traffic = trafficOf(backfill);
    this.#tokenWaits.inc({ traffic });
    this.#tokenWaitSeconds.inc({ traffic }, waitMs / 1000);
  }

  swept({ signalled, failed, left }: { signalled: number; failed: number; left: number }): void {
    this.#swept.inc({ result: 'signalled' }, signalled);
    this.#swept.inc({ result: 'failed' }, failed);
    this.#swept.inc({ result: 'left' }, left);
  }

  activity(name: string, backfill: boolean, result: string, waitedMs: number, tookMs: number): void {
    this.#activities.observe({ activity: name, result }, tookMs / 1000);
    this.#queueWaits.observe({ activity: name, traffic: trafficOf(backfill) }, Math.max(0, waitedMs) / 1000);
  }

  /** `route` is a pattern, or null for a path that matches none. */
  request({ method, route, status, seconds }: RequestFigures): void {
    this.#requests.observe({ method, route: route ?? 'none', status: String(status) }, seconds);
  }

  gatewayRequest({ upstream, endpoint, status, ownSeconds, bypassed, recovered }: GatewayFigures): void {
    const labels = { upstream: upstream ?? 'none', endpoint: endpoint ?? 'none', status: String(status) };
    this.#gatewayRequests.inc(labels);
    if (endpoint !== null) this.#gatewaySeconds.observe({ endpoint }, ownSeconds);
    if (bypassed !== null) this.#gatewayBypassed.inc({ type: bypassed });
    this.#gatewayRecovered.inc(recovered);
  }

  /** `limit` is one of the names that problem documents use. */
  refused(limit: string): void {
    this.#refusals.inc({ limit });
  }

  /** `limit` is the name of a limit of the tenant. */
  callBeyondLimit(limit: string): void {
    this.#callsBeyondLimits.inc({ limit });
  }

  /**
   * Registers the amounts that requests currently hold, by the names of the limits. `ask` runs at each scrape. Call it once.
   */
  inFlight(ask: () => Readonly<Record<string, number>>): void {
    const gauge: Gauge = new Gauge({
      name: 'palimpsest_api_in_flight',
      help: 'Amounts that API requests currently hold',
      labelNames: ['what'],
      registers: [this.registry],
      collect() {
        for (const [what, value] of Object.entries(ask())) gauge.set({ what }, value);
      },
    });
  }

  /** `ask` runs at each scrape; the gauge is omitted if it returns null. */
  gauge(name: string, help: string, ask: () => Promise<number | null>): void {
    const gauge: Gauge = new Gauge({
      name: `palimpsest_${name}`,
      help,
      registers: [this.registry],
      async collect() {
        const value = await ask().catch(() => null);
        if (value === null) gauge.reset();
        else gauge.set(value);
      },
    });
  }

  /** Returns the metrics in Prometheus's text format. */
  text(): Promise<string> {
    return this.registry.metrics();
  }

  /** Tenants may name any model in their policies; a label never has a text of theirs. */
  #known(model: string): string {
    return this.#configured.has(model) ? model : (registeredModel(model) ?? 'other');
  }

  #counter(name: string, help: string, labelNames: string[]): Counter {
    return new Counter({ name: `palimpsest_${name}`, help, labelNames, registers: [this.registry] });
  }

  #histogram(name: string, help: string, labelNames: string[], buckets: number[]): Histogram {
    return new Histogram({
      name: `palimpsest_${name}`,
      help,
      labelNames,
      buckets,
      registers: [this.registry],
    });
  }
}

const trafficOf = (backfill: boolean): string => (backfill ? 'backfill' : 'live');
