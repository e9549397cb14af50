import pg from 'pg';
import { agentTurn } from './conversation.js';
import { deploy } from './deployment.js';
import { startServers } from './servers.js';
import { SessionWorkflows } from '../src/temporal/session-workflows.js';

const times: Record<string, number[]> = {};
const note = (name: string, ms: number) => (times[name] ??= []).push(ms);
const query = pg.Client.prototype.query as any;
(pg.Client.prototype as any).query = function (this: any, ...args: any[]) {
  const text = String(args[0]?.text ?? args[0]).replace(/\s+/g, ' ').slice(0, 90);
  const start = performance.now();
  const made = query.apply(this, args);
  if (made?.then) made.then(() => note(`q ${text}`, performance.now() - start), () => undefined);
  return made;
};
const signal = (SessionWorkflows.prototype as any).signalTurn;
(SessionWorkflows.prototype as any).signalTurn = async function (...args: any[]) {
  const start = performance.now();
  const r = await signal.apply(this, args);
  note('signalTurn', performance.now() - start);
  return r;
};
(globalThis as any).__note = note;
const servers = await startServers((line) => console.error(line));
const d = await deploy(servers);
for (const [n, tokens] of [[0, 60], [20, 200]] as const) {
  let list: any[] = [];
  for (let i = 0; i < 160; i++) {
    if (i % 20 === 0) list = Array.from({ length: n }, (_, k) => agentTurn(tokens, i * 1000 + k)).flat();
    if (i === 60) for (const k of Object.keys(times)) delete times[k];
    const turn = agentTurn(tokens, i + 1);
    list.push(turn[0]);
    const start = performance.now();
    await d.palimpsest.sync({ session: `p${n}-${Math.floor(i / 20)}`, messages: list, policy: { model: 'gpt-4.1', overhead: 1024 } });
    if (i % 20 !== 0) note('sync', performance.now() - start);
    list.push(turn[5]);
  }
  console.log('---', n, tokens);
  for (const [name, all] of Object.entries(times).sort((a, b) => b[1].reduce((x, y) => x + y) - a[1].reduce((x, y) => x + y)).slice(0, 22)) {
    const s = [...all].sort((a, b) => a - b);
    console.log(name.padEnd(100), 'n', String(s.length).padStart(4), 'p50', s[s.length >> 1]!.toFixed(2), 'sum/sync', (s.reduce((a, b) => a + b) / (times.sync?.length ?? 1)).toFixed(2));
  }
}
await d.close();
await servers.stop();
