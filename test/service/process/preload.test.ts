/** A process that serves loads its tokenizer once it is ready, not with its first request. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CliProcess, stackEnv } from '../../support/cli.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({ worker: false });
});

afterAll(() => stack?.stop());

/** Writes a line when the process loads a tokenizer. */
const watching = `
  import Module from 'node:module';
  const load = Module._load;
  Module._load = (name, ...more) => {
    if (/^gpt-tokenizer/.test(name)) process.stderr.write('tokenizer loaded\\n');
    return load(name, ...more);
  };`;

test.each([
  ['worker', ['worker'], 'worker is polling'],
  ['API', ['api', '--port', '0'], 'API is listening'],
  ['gateway', ['gateway', '--port', '0', '--upstream', 'none=http://127.0.0.1:9'], 'gateway is listening'],
])('the %s is ready, then loads the tokenizer without a request', async (_, args, ready) => {
  const cli = new CliProcess(args, {
    ...stackEnv(stack),
    LOG_LEVEL: 'info',
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(watching)}`,
  });
  try {
    await cli.shows(new RegExp(ready));
    await cli.shows(/tokenizer loaded/);
  } finally {
    cli.child.kill('SIGTERM');
    await cli.ended;
  }
  expect(await cli.ended).toMatchObject({ code: 0 });
});
