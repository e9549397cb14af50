import type { LimitName, TenantOverrides } from '../../policy/tenant-limits.js';
import { argument, type CommandGroup } from '../command/command.js';
import { refuseUrl } from '../command/connect.js';
import type { Run } from '../command/run.js';
import { count } from '../terminal/numbers.js';

/** The value of each option; `limits set --help` explains them. */
const options: Record<LimitName, string> = {
  spendPerDay: '<usd>',
  spendPerMonth: '<usd>',
  modelTokensPerDay: '<tokens>',
  modelTokensPerMonth: '<tokens>',
  tokensPerMinute: '<tokens>',
  requestsPerMinute: '<calls>',
  concurrency: '<calls>',
  models: '<names>',
  prices: '<json>',
  policyCharacters: '<characters>',
  patterns: '<number>',
  patternCharacters: '<characters>',
  digestRetentionMs: '<ms>',
  storedBytes: '<bytes>',
  sessions: '<number>',
};

const meanings: Record<LimitName, string> = {
  spendPerDay: 'cost of the model calls of one day (UTC)',
  spendPerMonth: 'cost of the model calls of one month (UTC)',
  modelTokensPerDay: 'tokens of the model calls of one day (UTC)',
  modelTokensPerMonth: 'tokens of the model calls of one month (UTC)',
  tokensPerMinute: 'tokens of model calls per minute',
  requestsPerMinute: 'model calls per minute',
  concurrency: 'model calls in flight',
  models: 'models that may be called, separated by commas; * at the end for any ending',
  prices: 'USD per million tokens: {"gpt-4o*": {"input": 2.5, "output": 10}}',
  policyCharacters: "length of a policy's texts together",
  patterns: 'regular expressions of a policy',
  patternCharacters: 'length of one regular expression',
  digestRetentionMs: 'maximum of retention.digests',
  storedBytes: 'size of all stored messages',
  sessions: 'sessions that are not closed',
};

const names = Object.keys(options) as LimitName[];
const optionOf = (name: LimitName): string =>
  `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

export function addLimitCommands(parent: CommandGroup): void {
  const group = parent.below({
    name: 'limits',
    summary: 'limit the models, cost, rates and storage of a tenant',
    description:
      'Limits that the operator sets and the tenant cannot change. The section `limits` of the configuration has the ' +
      'defaults of all tenants. Works on PostgreSQL alone, with the role palimpsest_maintenance.',
    examples: [
      ['palimpsest limits set acme --spend-per-day 5 --models "gpt-4o-mini*"', 'limits of one tenant'],
      ['palimpsest limits show acme', 'its limits, where they come from, and what it has used'],
    ],
  });
  addShow(group);
  addSet(group);
  addClear(group);
}

function addShow(group: CommandGroup): void {
  group.add(
    {
      name: 'show',
      arguments: '<owner>',
      summary: 'list the limits of a tenant and what it has used',
      description: 'Lists each limit in force with its source, and how much of it the tenant has used.',
      examples: [['palimpsest limits show acme --json | jq .used', 'what it has used']],
    },
    (run, args) => show(run, argument(args, 0, 'owner')),
  );
}

function addSet(group: CommandGroup): void {
  const set = group.add<Partial<Record<LimitName, string>>>(
    {
      name: 'set',
      arguments: '<owner>',
      summary: 'change limits of a tenant',
      description:
        'Changes the named limits of the tenant and keeps its others. `none` removes a limit for this tenant, `default` ' +
        'returns to the configuration. Every process applies the change from its next read of the tenant on.',
      examples: [
        ['palimpsest limits set acme --spend-per-month 100 --concurrency 8', 'two limits'],
        ['palimpsest limits set acme --models none --stored-bytes default', 'any model, the usual storage'],
      ],
    },
    async (run, args, flags) => {
      const owner = argument(args, 0, 'owner');
      const { given, dropped } = await changesOf(flags);
      const { changeLimits } = await import('../../store/tenants/limits.js');
      await changeLimits(await poolOf(run), owner, given, dropped);
      await show(run, owner);
    },
  );
  for (const name of names) set.option(`${optionOf(name)} ${options[name]}`, meanings[name]);
}

function addClear(group: CommandGroup): void {
  group.add(
    {
      name: 'clear',
      arguments: '<owner>',
      summary: 'return to the limits of the configuration',
      description: 'Removes all limits of the tenant’s own. What it has used stays counted.',
      examples: [['palimpsest limits clear acme', 'the defaults apply']],
    },
    async (run, args) => {
      const owner = argument(args, 0, 'owner');
      const { clearLimits } = await import('../../store/tenants/limits.js');
      await clearLimits(await poolOf(run), owner);
      await show(run, owner);
    },
  );
}

async function changesOf(
  flags: Partial<Record<LimitName, string>>,
): Promise<{ given: TenantOverrides; dropped: LimitName[] }> {
  const { invalid } = await import('../../errors.js');
  const { tenantLimitsSchema } = await import('../../policy/tenant-limits.js');
  const { jsonOf, listOf, numberOf } = await import('../../config/values.js');
  const { complain } = await import('../../policy/issues.js');
  const named = names.filter((name) => flags[name] !== undefined);
  if (named.length === 0)
    throw invalid('No limit is given.', optionOf('spendPerDay'), 'Name at least one; --help lists them.');
  const dropped = named.filter((name) => flags[name] === 'default');
  const given: Record<string, unknown> = {};
  for (const name of named.filter((one) => !dropped.includes(one))) {
    const text = flags[name];
    const value = name === 'models' ? listOf(text) : name === 'prices' ? jsonOf(text) : numberOf(text);
    const field = tenantLimitsSchema.shape[name];
    const parsed = text === 'none' ? { success: true as const, data: null } : field.safeParse(value);
    if (!parsed.success) throw complain(parsed.error, field, value, optionOf(name));
    given[name] = parsed.data;
  }
  return { given, dropped };
}

async function show(run: Run, owner: string): Promise<void> {
  const pool = await poolOf(run);
  const { limitsInForce } = await import('../../policy/tenant-limits.js');
  const { findOverrides } = await import('../../store/tenants/limits.js');
  const { usageOf } = await import('../../store/tenants/usage.js');
  const own = await findOverrides(pool, owner);
  const limits = limitsInForce(run.config.limits, own) ?? {};
  const used = await usageOf(pool, owner);
  if (run.json) return run.out.value({ tenant: owner, limits, own: own ?? {}, used });
  const usedOf = new Map<LimitName, string>([
    ['spendPerDay', used.spendToday.toFixed(2)],
    ['spendPerMonth', used.spendThisMonth.toFixed(2)],
    ['modelTokensPerDay', count(used.modelTokensToday)],
    ['modelTokensPerMonth', count(used.modelTokensThisMonth)],
    ['concurrency', count(used.callsInFlight)],
    ['storedBytes', count(used.storedBytes)],
    ['sessions', count(used.sessions)],
  ]);
  const shown = (value: unknown): string =>
    value === undefined ? 'none' : typeof value === 'number' ? count(value) : JSON.stringify(value);
  await run.out.table<LimitName>(
    [
      { head: 'limit', value: (name) => name },
      { head: 'value', value: (name) => shown(limits[name]), align: 'right', least: 10, shorten: 'end' },
      { head: 'used', value: (name) => usedOf.get(name) ?? '–', align: 'right' },
      {
        head: 'from',
        value: (name) =>
          own !== null && name in own ? 'tenant' : name in run.config.limits ? 'configuration' : '–',
      },
    ],
    names,
  );
}

async function poolOf(run: Run) {
  refuseUrl(run.globals, 'limits');
  const pool = await run.pool();
  const { assertMigrated } = await import('../../store/connection/migrate.js');
  await assertMigrated(pool);
  return pool;
}
