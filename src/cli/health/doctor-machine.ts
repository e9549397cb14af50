import { statfs } from 'node:fs/promises';
import type { Config } from '../../config/config.js';
import { count } from '../terminal/numbers.js';
import { fail, failed, ok, warn, type Finding } from './doctor-finding.js';

/** As in package.json. */
const leastNode = [20, 19] as const;
const gigabyte = 1024 ** 3;

export function checkNode(version = process.versions.node): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const enough = major > leastNode[0] || (major === leastNode[0] && minor >= leastNode[1]);
  if (enough) return ok('Node', version);
  return fail('Node', `${version} is too old`, `Install Node ${leastNode.join('.')} or later.`);
}

/** Room where the embedded servers keep their data. */
export async function checkDisk({ dataDir }: Config): Promise<Finding> {
  try {
    const { bavail, bsize, blocks } = await statfs(dataDir);
    const free = bavail * bsize;
    const detail = `${(free / gigabyte).toFixed(1)} GB of ${count(Math.round((blocks * bsize) / gigabyte))} GB free in ${dataDir}`;
    if (free < gigabyte / 10)
      return fail('disk', detail, 'Make room: PostgreSQL stops when the disk is full.');
    if (free < gigabyte) return warn('disk', detail, 'Make room soon, or move PALIMPSEST_DATA.');
    return ok('disk', detail);
  } catch (error) {
    return failed('disk', error);
  }
}
