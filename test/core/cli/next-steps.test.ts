/** The last lines of `dev`: its commands reach the sessions that it has played. */
import { expect, test } from 'vitest';
import { nextSteps, rewriteLines } from '../../../src/cli/play/report.js';

const config = { databaseUrl: undefined, temporal: {}, dataDir: '/data', api: { tokens: [] } } as never;
const servers = { uiUrl: null, apiUrl: 'http://127.0.0.1:7280' };

test('commands and calls name the tenant', () => {
  const text = nextSteps(servers, { session: 's-1', tenant: 'acme' }, config, {}).join('\n');
  expect(text).toContain("Palimpsest.connect({ tenant: 'acme' })");
  expect(text).toContain("HttpPalimpsest.connect({ url: 'http://127.0.0.1:7280', token })");
  expect(text).toContain('/v1/sessions/s-1/context -H "authorization: Bearer $PALIMPSEST_TOKEN"');
  expect(text).toMatch(/ status s-1 --tenant acme$/m);
  const [, command] = rewriteLines(['s-1'], { staysUp: true, tenant: 'acme' }, {});
  expect(command).toMatch(/ resummarize s-1 --tenant acme$/);
});

test('the default tenant needs no option and no token', () => {
  const text = nextSteps(servers, { session: 's-1' }, config, {}).join('\n');
  expect(text).toContain('Palimpsest.connect();');
  expect(text).toMatch(/ status s-1$/m);
  expect(text).not.toMatch(/token|tenant/i);
});
