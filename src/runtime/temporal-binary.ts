import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createWriteStream, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { PalimpsestError } from '../errors.js';
import { withLock } from './lock.js';

/** Source of the server program. `running`: an existing server is used; `address`: TEMPORAL_ADDRESS names a server. */
export type TemporalSource = 'address' | 'running' | 'path' | 'cache' | 'download' | 'build';

/** The newest CLI tag that `go install` accepts (later ones have a `replace` directive). It contains server 1.29.1. */
const temporalVersion = 'v1.5.1';

/** An archive to download. Nothing of it is run unless its bytes have this hash. */
export interface Archive {
  url: string;
  /** In hex. */
  sha256: string;
}

/**
 * The release's archives by platform; the hashes are those that Hermit's package lists pin (cashapp/hermit-packages and, except for
 * linux-arm64, zph/hermit-packages). `go install` checks its modules against Go's checksum database.
 */
const archiveHashes: Readonly<Record<string, string>> = {
  linux_amd64: 'ddc95e08b0b076efd4ea9733a3f488eb7d2be875f8834e616cd2a37358b4852d',
  linux_arm64: 'bd1b0db9f18b051026de8bf6cc1505f2510f14bbb7a8b9a4a91fff46c77454f5',
  darwin_amd64: 'bbb73e2a31135abe50a1f1cdb35030c42961df618e8ce9c60ae89f201540c5d9',
  darwin_arm64: 'cca01b7ea35ad56e2a328d9ae596bf716bd22313ef63c7a761c88354457c2415',
};

function archiveOfRelease(): Archive {
  const platform = `${process.platform}_${process.arch === 'x64' ? 'amd64' : process.arch}`;
  const sha256 = archiveHashes[platform];
  if (sha256 === undefined) throw new Error(`no archive with a known checksum for ${platform}`);
  const release = `https://github.com/temporalio/cli/releases/download/${temporalVersion}`;
  return { url: `${release}/temporal_cli_${temporalVersion.slice(1)}_${platform}.tar.gz`, sha256 };
}

export interface TemporalProgram {
  path: string;
  source: TemporalSource;
}

interface Search {
  cacheDir: string;
  log: (line: string) => void;
  /** @default the archive of the release for this platform */
  archive?: Archive;
}

/** Describes the source for the line that the command prints at its start. */
export function describeTemporalSource(source: TemporalSource): string {
  switch (source) {
    case 'address':
      return 'the server at TEMPORAL_ADDRESS';
    case 'running':
      return 'dev server, already running';
    case 'path':
      return 'dev server, `temporal` from the PATH';
    case 'cache':
      return `dev server, Temporal CLI ${temporalVersion} from the cache`;
    case 'download':
      return `dev server, Temporal CLI ${temporalVersion} downloaded`;
    case 'build':
      return `dev server, Temporal CLI ${temporalVersion} built from its Go module`;
  }
}

/**
 * Finds the Temporal CLI on the PATH, finds it in the cache folder, downloads it, or builds it with Go, in this order. Throws
 * `Temporal.Unavailable` with the reason why each failed and the possible remedies.
 */
export async function findTemporal(search: Search): Promise<TemporalProgram> {
  const onPath = await findOnPath(search.log);
  if (onPath) return { path: onPath, source: 'path' };
  const folder = path.join(search.cacheDir, `temporal-${temporalVersion}`);
  const cached = path.join(folder, executable);
  if (existsSync(cached)) return { path: cached, source: 'cache' };
  mkdirSync(folder, { recursive: true });
  return withLock(
    path.join(folder, 'lock'),
    async () =>
      existsSync(cached)
        ? { path: cached, source: 'cache' }
        : { path: cached, source: await install(cached, search) },
    (holder) => search.log(`Temporal: waiting for process ${holder}, which is installing it`),
  );
}

const executable = process.platform === 'win32' ? 'temporal.exe' : 'temporal';
const connectTimeoutMs = 5_000;
const downloadTimeoutMs = 300_000;
const buildTimeoutMs = 1_800_000;
const progressEveryMs = 5_000;

// Both ways write to a temporary place and rename at the end, so that an interrupted attempt leaves no partial program.
async function install(target: string, { log, archive }: Search): Promise<TemporalSource> {
  const folder = path.dirname(target);
  for (const name of readdirSync(folder)) {
    if (name.startsWith('unfinished-')) rmSync(path.join(folder, name), { recursive: true, force: true });
  }
  const ways: Record<'download' | 'build', (into: string) => Promise<void>> = {
    download: (into) => download(into, archive ?? archiveOfRelease(), log),
    build: (into) => build(into, log),
  };
  const reasons: string[] = ['`temporal` is not on the PATH', `not in ${folder}`];
  for (const way of ['download', 'build'] as const) {
    const unfinished = path.join(folder, `unfinished-${way}-${process.pid}`);
    mkdirSync(unfinished);
    try {
      await ways[way](unfinished);
      await promisify(execFile)(path.join(unfinished, executable), ['--version']);
      renameSync(path.join(unfinished, executable), target);
      return way;
    } catch (error) {
      reasons.push(`${way}: ${reasonOf(error)}`);
      log(`Temporal: ${way} failed (${reasonOf(error)})`);
    } finally {
      rmSync(unfinished, { recursive: true, force: true });
    }
  }
  throw new PalimpsestError(
    'Temporal.Unavailable',
    `There is no Temporal server to start: ${reasons.join('; ')}.`,
    {
      hint:
        'Do one of these: set TEMPORAL_ADDRESS to a running server (or Temporal Cloud); put the Temporal CLI on the PATH ' +
        '(https://docs.temporal.io/cli); install Go (https://go.dev/dl): the next start then builds the CLI.',
    },
  );
}

/** Downloads an archive, checks its hash and unpacks the program. Only the connection has a short timeout. */
async function download(into: string, { url, sha256 }: Archive, log: Search['log']): Promise<void> {
  const { host } = new URL(url);
  const abort = new AbortController();
  let timer = setTimeout(
    () => abort.abort(new Error(`no answer within ${connectTimeoutMs / 1_000} s`)),
    connectTimeoutMs,
  );
  const file = path.join(into, 'archive.tar.gz');
  const hash = createHash('sha256');
  try {
    const response = await fetch(url, { signal: abort.signal });
    if (!response.ok || !response.body) throw new Error(`${host} answers ${response.status}`);
    log(`Temporal: downloading the CLI ${temporalVersion} from ${host}`);
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(new Error('the download took too long')), downloadTimeoutMs);
    const hashed = async function* (bytes: AsyncIterable<Buffer>) {
      for await (const piece of bytes) {
        hash.update(piece);
        yield piece;
      }
    };
    await pipeline(Readable.fromWeb(response.body), hashed, createWriteStream(file));
  } finally {
    clearTimeout(timer);
  }
  const found = hash.digest('hex');
  if (found !== sha256) throw new Error(`${url} has the sha256 ${found} instead of ${sha256}`);
  await promisify(execFile)('tar', ['-xzf', file, '-C', into, executable]);
}

async function build(into: string, log: Search['log']): Promise<void> {
  const { GOOS, GOARCH, ...inherited } = process.env;
  void [GOOS, GOARCH]; // A cross-compiling `go install` refuses GOBIN.
  const module = `github.com/temporalio/cli/cmd/temporal@${temporalVersion}`;
  const go = spawn('go', ['install', '-v', '-ldflags', '-s -w', module], {
    env: { ...inherited, GOBIN: into },
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: buildTimeoutMs,
  });
  const started = Date.now();
  let downloaded = 0;
  let compiled = 0;
  let output = '';
  go.stderr.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(-2_000);
    for (const line of text.split('\n')) {
      if (line.startsWith('go: downloading')) downloaded++;
      else if (line && !line.startsWith('go: ')) compiled++;
    }
  });
  const say = () => {
    const seconds = Math.round((Date.now() - started) / 1_000);
    const done = `${downloaded} modules fetched, ${compiled} packages compiled`;
    log(
      `Temporal: building the server from ${module} (only once, takes a few minutes): ${seconds} s, ${done}`,
    );
  };
  go.once('spawn', say);
  const progress = setInterval(say, progressEveryMs);
  try {
    await exitOf(go, 'go');
  } catch (cause) {
    const said = output.trim().split('\n').slice(-3).join(' ');
    throw said ? new Error(`${reasonOf(cause)}: ${said}`, { cause }) : cause;
  } finally {
    clearInterval(progress);
  }
  log(`Temporal: built in ${Math.round((Date.now() - started) / 1_000)} s`);
}

function exitOf(child: ReturnType<typeof spawn>, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) =>
      reject(error.code === 'ENOENT' ? new Error(`${name} is not on the PATH`) : error),
    );
    child.once('exit', (code, signal) =>
      code === 0 ? resolve() : reject(new Error(`${name} ended with ${signal ?? code}`)),
    );
  });
}

/** Returns `temporal` of the PATH if its server is new enough for task-queue fairness (1.29), otherwise null. */
async function findOnPath(log: Search['log']): Promise<string | null> {
  const folders = (process.env.PATH ?? '').split(path.delimiter).filter(Boolean);
  const program = folders.map((folder) => path.join(folder, executable)).find((file) => existsSync(file));
  if (!program) return null;
  try {
    const { stdout } = await promisify(execFile)(program, ['--version']);
    const [, major, minor] = /Server (\d+)\.(\d+)/.exec(stdout) ?? [];
    if (Number(major) > 1 || (Number(major) === 1 && Number(minor) >= 29)) return program;
    log(`Temporal: ${program} is too old (${stdout.trim()}; server 1.29 is required)`);
  } catch (error) {
    log(`Temporal: ${program} does not run (${reasonOf(error)})`);
  }
  return null;
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.message === 'fetch failed'
    ? error.cause.message
    : error.message;
}
