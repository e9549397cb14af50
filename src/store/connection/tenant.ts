/**
 * How the server learns the tenant of a statement. The setting ends with the transaction, so that a pooled connection, also one
 * of PgBouncer in transaction mode, carries no tenant from one caller to the next.
 */
import pg, { type PoolClient } from 'pg';

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
  parse(statement: { text: string }): void;
  bind(parameters: { values: string[] }): void;
  execute(portal: object): void;
}

interface RunningQuery {
  submit(connection: Protocol): Error | null;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: Protocol): void;
}

const RunningQuery = pg.Query as unknown as new (
  config: pg.QueryConfig & { queryMode: 'extended' },
  done: (error: Error | null, result: pg.QueryResult) => void,
) => RunningQuery;

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
    // One packet for both statements.
    connection.stream.cork();
    try {
      connection.parse({ text: "select set_config('palimpsest.tenant', $1, true)" });
      connection.bind({ values: [this.tenant] });
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
    this.told = true;
  }
}
