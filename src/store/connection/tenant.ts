/**
 * How the server learns the tenant of a statement. The setting ends with the transaction, so that a pooled connection, also one
 * of PgBouncer in transaction mode, carries no tenant from one caller to the next.
 */
import pg, { type PoolClient } from 'pg';
import { prepared } from './prepared.js';

/** Statement for the beginning of a transaction. */
export function tellTenant(tenant: string): string {
  return `select set_config('palimpsest.tenant', ${pg.escapeLiteral(tenant)}, true)`;
}

/**
 * The connection for statements that are transactions of their own. It sends the tenant with each of them in one message. The
 * protocol makes everything up to its next Sync one transaction.
 */
export function ofTenant(tenant: string, client: PoolClient): PoolClient {
  const query = (config: pg.QueryConfig, values = config.values): Promise<pg.QueryResult> =>
    new Promise((resolve, reject) => {
      const extended = { ...config, values, queryMode: 'extended' } as const;
      const sent = new TenantQuery(tenant, extended, (error, result) =>
        error ? reject(error) : resolve(result),
      );
      client.query(sent as unknown as pg.Submittable);
    });
  return Object.create(client, { query: { value: query } }) as PoolClient;
}

/** The parts of pg's connection and query that its types leave out. pg-cursor and pg-query-stream use them as well. */
interface Protocol {
  stream: { cork(): void; uncork(): void };
  /** Texts of the statements that this connection has prepared, by name. */
  parsedStatements: Record<string, string>;
  parse(statement: { text: string; name?: string }): void;
  bind(parameters: { values: string[]; statement?: string }): void;
  execute(portal: object): void;
}

interface RunningQuery {
  readonly name?: string;
  submit(connection: Protocol): Error | null;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: Protocol): void;
}

const RunningQuery = pg.Query as unknown as new (
  config: pg.QueryConfig & { queryMode: 'extended' },
  done: (error: Error | null, result: pg.QueryResult) => void,
) => RunningQuery;

const telling = prepared('tell_tenant', "select set_config('palimpsest.tenant', $1, true)");

class TenantQuery extends RunningQuery {
  /** The server has answered the first statement, which sets the tenant. */
  private told = false;

  constructor(
    private readonly tenant: string,
    ...query: ConstructorParameters<typeof RunningQuery>
  ) {
    super(...query);
  }

  override submit(connection: Protocol): Error | null {
    // Prepared if the statement itself is.
    const { name, text } = this.name ? telling : { ...telling, name: '' };
    // One packet for both statements.
    connection.stream.cork();
    try {
      if (connection.parsedStatements[name] === undefined) connection.parse({ name, text });
      connection.bind({ statement: name, values: [this.tenant] });
      connection.execute({});
      return super.submit(connection);
    } finally {
      connection.stream.uncork();
    }
  }

  override handleDataRow(message: unknown): void {
    if (this.told) super.handleDataRow(message);
  }

  override handleCommandComplete(message: unknown, connection: Protocol): void {
    if (this.told) super.handleCommandComplete(message, connection);
    else if (this.name) connection.parsedStatements[telling.name] = telling.text;
    this.told = true;
  }
}
