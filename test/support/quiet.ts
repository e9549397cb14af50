/** The SDK's log of a worker's life would bury what a test prints; failures are asserted, not read. */
import { DefaultLogger, Runtime } from '@temporalio/worker';

Runtime.install({ logger: new DefaultLogger('ERROR') });
