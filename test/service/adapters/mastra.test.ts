/** `palimpsest/mastra` with `@mastra/core` and a scripted model. The package is installed outside of the checkout. */
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { palimpsestMemory } from '../../../src/adapters/mastra.js';
import { document, examplesIn } from '../../support/documents.js';
import {
  agentWith,
  called,
  loaded,
  lookingTwice,
  mastra,
  policy,
  saidBy,
  ScriptedModel,
  text,
  window,
  useMastraServer,
} from '../../support/mastra-agent.js';
import { run } from '../../support/tools.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));

const { stack, connect, replayed } = useMastraServer();

test.each<[path: string, options: object]>([
  ['client', {}],
  ['session', { client: { sync: () => null }, session: '' }],
  ['sesion', { client: { sync: () => null }, sesion: 's-1' }],
  ['onEdit', { client: { sync: () => null }, onEdit: 'append' }],
])('palimpsestMemory refuses a wrong %s', (path, options) => {
  const make = () => Reflect.apply(palimpsestMemory, null, [options]);
  expect(make).toThrow(expect.objectContaining({ type: 'Input.Invalid', path }));
});

describe.skipIf('why' in mastra)('an agent of Mastra', () => {
  test('fits the window for 100 turns', async () => {
    const model = lookingTwice();
    let agent = agentWith(model, { client: await connect(), policy });
    for (let turn = 1; turn <= 100; turn++) {
      // A process that is started again has a new client and a new agent.
      if (turn % 10 === 0) agent = agentWith(model, { client: await connect(), policy });
      if (turn % 25 === 0) await stack().palimpsest.settled({ session: 'turns' });
      const memory = { thread: 'turns', resource: 'user-1' };
      const { text: answer } = await agent.generate(`Question ${turn}: ${'word '.repeat(100)}`, { memory });
      expect(answer).toBe(`Answer ${turn}.`);
    }
    expect(model.refused).toEqual([]);
    expect(await replayed('turns')).toEqual(model.said.map(saidBy));
    expect(model.requests).toBe(200);
    expect(model.largest).toBeLessThanOrEqual(window);
    expect((await stack().palimpsest.status({ session: 'turns' })).generation).toBeGreaterThan(3);
  });

  /** Calls until it has looked at 60 orders. Requests in `failing` fail. */
  function lookingOften(failing: number[] = [], orders = 60): ScriptedModel {
    let order = 0;
    return new ScriptedModel((_, request) => {
      if (failing.includes(request)) throw new Error('The connection broke.');
      order++;
      return order > orders ? [text('All shipped.')] : [called(`c${order}`, order)];
    });
  }

  const often = { maxSteps: 100, modelSettings: { maxRetries: 0 } };

  test('fits the window within a call of 60 steps', async () => {
    const model = lookingOften();
    const agent = agentWith(model, { client: await connect(), session: 'steps', policy });
    const { text: answer } = await agent.generate('All orders?', often);
    expect(answer).toBe('All shipped.');
    expect(model.refused).toEqual([]);
    expect(await replayed('steps')).toEqual(model.said.map(saidBy));
    expect(model.largest).toBeLessThanOrEqual(window);
  });

  test.each([
    ['messages', '', { memory: { thread: 'empty', resource: 'user-1' } }],
    ['session', 'All orders?', {}],
  ])('is refused without its %s', async (path, question, options) => {
    const agent = agentWith(lookingTwice(), { client: await connect(), policy });
    await expect(agent.generate(question, options)).rejects.toMatchObject({ type: 'Input.Invalid', path });
  });

  test('streams', async () => {
    const model = lookingTwice();
    const agent = agentWith(model, { client: await connect(), session: 'streamed', policy });
    for (let turn = 1; turn <= 3; turn++) {
      const { text: answer } = await agent.stream(`Question ${turn}?`);
      expect(await answer).toBe(`Answer ${turn}.`);
    }
    expect(await replayed('streamed')).toEqual(model.said.map(saidBy));
  });

  test('stores a question once that is asked again after a failure', async () => {
    const model = lookingOften([1]);
    const agent = agentWith(model, { client: await connect(), session: 'again', policy });
    await expect(agent.generate('All orders?', often)).rejects.toThrow('The connection broke.');
    await agent.generate('All orders?', often);
    expect(await replayed('again')).toEqual(model.said.map(saidBy));
  });

  test.each(['generate', 'stream'] as const)(
    'whose %s fails after a step goes on from this step',
    async (way) => {
      const session = `open-${way}`;
      const asks = async (failing: number[], question: string) => {
        const model = lookingOften(failing, 4);
        const agent = agentWith(model, { client: await connect(), session, policy });
        const asked =
          way === 'generate'
            ? agent.generate(question, often).then((result) => result.text)
            : agent.stream(question, often).then((result) => result.text);
        return { model, asked };
      };
      const failed = await asks([3], 'All orders?');
      await expect(failed.asked).rejects.toThrow('The connection broke.');
      const stored = failed.model.said.map(saidBy);
      expect(await replayed(session)).toEqual(expect.arrayContaining(stored));
      // Another process goes on: the question is not stored again, and the first two orders are not looked at again.
      const { model, asked } = await asks([], 'All orders?');
      expect(await asked).toBe('All shipped.');
      const items = await replayed(session);
      expect(items.filter((item) => item.startsWith('["user"'))).toHaveLength(1);
      expect(items).toHaveLength(1 + 2 * 2 + 4 * 2 + 1);
      expect(model.refused).toEqual([]);
      // The turn is answered: the same question is another one.
      await (
        await asks([], 'All orders?')
      ).asked;
      expect((await replayed(session)).filter((item) => item.startsWith('["user"'))).toHaveLength(2);
    },
  );

  test('goes on after an approval, in another process', async () => {
    const { Mastra } = await loaded('mastra/index.js');
    const { InMemoryStore } = await loaded('storage/index.js');
    const storage = new InMemoryStore();
    const model = lookingTwice();
    const restarted = async () => {
      const agent = agentWith(model, { client: await connect(), policy }, {}, { requireApproval: true });
      return new Mastra({ agents: { support: agent }, storage, logger: false }).getAgent('support');
    };
    const memory = { thread: 'approved', resource: 'user-1' };
    for (let turn = 1; turn <= 3; turn++) {
      let result = await (await restarted()).generate(`Question ${turn}?`, { memory });
      while (result.finishReason === 'suspended') {
        const { toolCallId } = result.suspendPayload;
        result = await (await restarted()).approveToolCallGenerate({ runId: result.runId, toolCallId });
      }
      expect(result.text).toBe(`Answer ${turn}.`);
    }
    expect(await replayed('approved')).toEqual(model.said.map(saidBy));
  });

  test('stores the messages of two calls at once', async () => {
    const answers = ['A', 'B'].map(
      (name) =>
        new ScriptedModel((_, request) =>
          request <= 5 ? [called(`${name}${request}`, request)] : [text(`${name} is done.`)],
        ),
    );
    const client = await connect();
    await Promise.all(
      answers.map((model, index) =>
        agentWith(model, { client, session: 'at-once', policy }).generate(`Question ${index}?`, often),
      ),
    );
    const stored = await replayed('at-once');
    expect(new Set(stored).size).toBe(2 * (1 + 5 * 2 + 1));
    expect(stored).toHaveLength(2 * (1 + 5 * 2 + 1));
  });

  test('goes on after a question that is larger than the window', async () => {
    const model = lookingTwice();
    const agent = agentWith(model, { client: await connect(), session: 'large', policy });
    const large = agent.generate(`Read: ${'word '.repeat(6_000)}`);
    await expect(large).rejects.toMatchObject({ type: 'Budget.Unreachable' });
    const { text: answer } = await agent.generate('And now?');
    expect(answer).toBe('Answer 1.');
    expect(model.refused).toEqual([]);
    expect(await replayed('large')).toHaveLength(1 + 4);
  });

  test('is refused a second history', async () => {
    const { MockMemory } = await loaded('memory/index.js');
    const options = { lastMessages: 10 };
    const memory = new MockMemory({ options });
    const model = lookingTwice();
    const of = { memory: { thread: 'second', resource: 'user-1' } };
    const agent = agentWith(model, { client: await connect(), policy }, { memory });
    await agent.generate('Question 1?', of);
    await expect(agent.generate('Question 2?', of)).rejects.toThrow('has added earlier messages');
    const alone = agentWith(
      model,
      { client: await connect(), policy },
      { memory: new MockMemory({ options: { lastMessages: false } }) },
    );
    await alone.generate('Question 2?', of);
    expect(await replayed('second')).toHaveLength(8);
  });

  test('has the types of Mastra, as the examples of its page', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'mastra-'));
    try {
      const packages = 'folder' in mastra ? path.join(mastra.folder, 'node_modules') : '';
      await symlink(packages, path.join(folder, 'node_modules'));
      const examples = examplesIn(document('docs/mastra.md')).filter(
        ({ language }) => language === 'typescript',
      );
      expect(examples).toHaveLength(3);
      for (const [index, { code }] of examples.entries())
        await writeFile(path.join(folder, `${index}.ts`), code);
      const compilerOptions = {
        ...{ strict: true, skipLibCheck: true, module: 'NodeNext', target: 'ES2022', lib: ['ES2023'] },
        ...{ types: ['node'], typeRoots: [path.join(root, 'node_modules', '@types')] },
      };
      const compile = async (name: string, config: object): Promise<void> => {
        await writeFile(path.join(folder, name), JSON.stringify(config));
        const compiler = path.join(root, 'node_modules/typescript/bin/tsc');
        await run([process.execPath, compiler, '-p', path.join(folder, name)]);
      };
      const types = path.join(folder, 'types');
      const src = path.join(root, 'src');
      await writeFile(path.join(folder, 'package.json'), JSON.stringify({ type: 'module' }));
      await compile('declarations.json', {
        compilerOptions: {
          ...compilerOptions,
          ...{ declaration: true, emitDeclarationOnly: true, rootDir: src, outDir: types },
        },
        files: ['http-client/index.ts', 'adapters/mastra.ts'].map((file) => path.join(src, file)),
      });
      const paths = {
        'palimpsest-client': [path.join(types, 'http-client/index.d.ts')],
        'palimpsest-client/mastra': [path.join(types, 'adapters/mastra.d.ts')],
      };
      await compile('examples.json', {
        compilerOptions: { ...compilerOptions, noEmit: true, exactOptionalPropertyTypes: true, paths },
        files: examples.map((_, index) => `${index}.ts`),
      });
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
