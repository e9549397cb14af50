/**
 * Property tests draw the same cases in every run, so that a new failure comes from the change that is being tested.
 * `PROPERTY_SEED=random npm test` looks for new ones, `PROPERTY_SEED=<number>` goes back to those of a run.
 */
import fc from 'fast-check';

const { PROPERTY_SEED = '20260101' } = process.env;
if (PROPERTY_SEED !== 'random') {
  const seed = Number(PROPERTY_SEED);
  if (!Number.isInteger(seed))
    throw new Error(`PROPERTY_SEED must be a whole number or random, not ${PROPERTY_SEED}`);
  fc.configureGlobal({ ...fc.readConfigureGlobal(), seed });
}
