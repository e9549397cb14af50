/** Whether a model call may be made now: within the deployment's tokens per minute and the operator's limits of the tenant. */
import type { Pool } from 'pg';
import { isPassingFailureOfStore, type PalimpsestError } from '../../errors.js';
import { priceOf, type TenantLimits } from '../../policy/tenant-limits.js';
import { correctTokens, deploymentBucket, drawTokens, type Share } from '../rate-limit/tokens-per-minute.js';
import { addSpend, type Amount, limitsSpend, reserveSpend } from './spend.js';

/** Tokens of the prompt and of the answer. */
export interface CallTokens {
  inputTokens: number;
  outputTokens: number;
}

export interface ModelCall {
  tenant: string;
  model: string;
  limits: TenantLimits | undefined;
  /** The deployment's tokens per minute. @default unlimited */
  perMinute: number | undefined;
  /** The most that the call may use. It is computed only if something depends on it. */
  most: () => CallTokens;
  backfill: boolean;
  /** Identifies the call when it asks again. */
  caller: string;
}

export type Admission =
  /** The call may be made. Call `settle` once afterwards, with what it used; null: it may have used the most. */
  | { settle: (used: CallTokens | null) => Promise<void> }
  /** Ask again after this time: the rate of the deployment or of the tenant is used up. */
  | { waitMs: number; tokens: number }
  /** Not before the tenant's day or month ends. */
  | { refused: PalimpsestError };

export async function admitCall(pool: Pool, call: ModelCall): Promise<Admission> {
  const { tenant, limits, backfill, caller } = call;
  const shares = sharesOf(call);
  const limited = limitsSpend(limits);
  const reserved = shares.length > 0 || limited ? call.most() : null;
  if (shares.length > 0) {
    const { waitMs } = await drawTokens(pool, { shares, backfill, caller });
    if (waitMs > 0) return { waitMs, tokens: reserved ? tokensOf(reserved) : 0 };
  }
  const giveBack = async (used: CallTokens): Promise<void> => {
    for (const { bucket, amount } of shares.filter(({ bucket }) => !bucket.endsWith(requests)))
      await correctTokens(pool, amount - tokensOf(used), bucket);
  };
  const reservation =
    limited && reserved ? await reserveSpend(pool, tenant, limits, amountOf(call, reserved)) : null;
  if (reservation && 'refused' in reservation) {
    await passing(giveBack({ inputTokens: 0, outputTokens: 0 }));
    return reservation;
  }
  return {
    settle: async (used) => {
      const spent = amountOf(call, used ?? call.most());
      const before = reservation && reserved ? amountOf(call, reserved) : { cost: 0, tokens: 0 };
      const more = { cost: spent.cost - before.cost, tokens: spent.tokens - before.tokens };
      await passing(addSpend(pool, tenant, more, reservation?.day));
      if (used !== null) await passing(giveBack(used));
    },
  };
}

const requests = '/requests-per-minute';

/** Buckets of tenants first: that of the deployment, which all calls share, is locked for the shortest time. */
function sharesOf({ tenant, limits, perMinute, most }: ModelCall): Share[] {
  const { tokensPerMinute, requestsPerMinute } = limits ?? {};
  const own = `tenant/${tenant}`;
  return [
    ...(requestsPerMinute === undefined
      ? []
      : [{ bucket: `${own}${requests}`, amount: 1, perMinute: requestsPerMinute }]),
    ...(tokensPerMinute === undefined
      ? []
      : [{ bucket: `${own}/tokens-per-minute`, amount: tokensOf(most()), perMinute: tokensPerMinute }]),
    ...(perMinute === undefined ? [] : [{ bucket: deploymentBucket, amount: tokensOf(most()), perMinute }]),
  ];
}

const tokensOf = ({ inputTokens, outputTokens }: CallTokens): number => inputTokens + outputTokens;

function amountOf({ limits, model }: ModelCall, used: CallTokens): Amount {
  const { input = 0, output = 0 } = priceOf(limits?.prices, model) ?? {};
  return {
    cost: (input * used.inputTokens + output * used.outputTokens) / 1_000_000,
    tokens: tokensOf(used),
  };
}

/** A correction that is lost to an outage of the database keeps the reservation; the answer must not be lost. */
async function passing(correction: Promise<void>): Promise<void> {
  await correction.catch((error: unknown) => {
    if (!isPassingFailureOfStore(error)) throw error;
  });
}
