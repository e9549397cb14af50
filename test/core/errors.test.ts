import { expect, it } from 'vitest';
import { PalimpsestError, restated } from '../../src/errors.js';

it('a failure restated keeps what is not given anew', () => {
  const cause = new Error('why');
  const forTenants = new PalimpsestError('Llm.Rejected', 'for tenants');
  const kept = { path: 'messages[0]', details: { item: 0 }, cause, forTenants };
  const failure = new PalimpsestError('Llm.Rejected', 'refused', { ...kept, hint: 'old' });
  expect(restated(failure, { hint: 'new' })).toEqual(
    new PalimpsestError('Llm.Rejected', 'refused', { ...kept, hint: 'new' }),
  );
  expect(restated(failure, { message: 'no', path: undefined })).toEqual(
    new PalimpsestError('Llm.Rejected', 'no', { ...kept, hint: 'old', path: undefined }),
  );
});
