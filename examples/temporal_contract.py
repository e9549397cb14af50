"""An agent platform that holds only a Temporal client, in Python: turns travel inside the signal.

    pip install temporalio
    PALIMPSEST_INLINE_TENANTS=acme npm start            # the tenant must be allowed to
    python examples/temporal_contract.py --address 127.0.0.1:7233 --tenant acme --session s-1

Starts (or wakes) the session's workflow with one signal a turn, compacts by hand, and prints the session's status. Message
text belongs into Postgres, not into Temporal's histories: prefer the HTTP API where your platform can speak HTTP, and
append there; a signal with `turnId`, `seq` and `due` then says all a workflow needs to know.
"""

import argparse
import asyncio
import json
import os
from datetime import timedelta
from urllib.parse import quote

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import Priority, WorkflowIDConflictPolicy

IDLE_AFTER_MS = 3_600_000


def part(text: str) -> str:
    """A part of a workflow id: percent-encoded like JavaScript's encodeURIComponent, at most 200 bytes."""
    return quote(text, safe="!~*'()")


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--address", default="127.0.0.1:7233")
    arguments.add_argument("--namespace", default="default")
    arguments.add_argument("--queue", default="compaction-wf")
    arguments.add_argument("--tenant", default="default")
    arguments.add_argument("--session", required=True)
    arguments.add_argument("--turns", type=int, default=3)
    given = arguments.parse_args()

    client = await Client.connect(given.address, namespace=given.namespace)
    workflow_id = f"session/{part(given.tenant)}/{part(given.session)}"
    start = {
        "v": 1,
        "tenant": given.tenant,
        "session": given.session,
        "idleAfterMs": IDLE_AFTER_MS,
    }
    # Live work goes before a backfill (5), and tenants share fairly.
    priority = Priority(priority_key=2, fairness_key=part(given.tenant)[:64])

    for number in range(1, given.turns + 1):
        turn = {
            # The same turn twice is stored once: repeat it when you are not sure.
            "turnId": f"python-{number}",
            "messages": [
                {"role": "user", "content": f"Question {number}: what does invoice {number} say?"},
                {"role": "assistant", "content": f"Invoice {number} is paid. " + "All items were delivered. " * 40},
            ],
        }
        await client.start_workflow(
            "session",
            start,
            id=workflow_id,
            task_queue=given.queue,
            start_signal="turn",
            start_signal_args=[turn],
            priority=priority,
        )

    handle = client.get_workflow_handle(workflow_id)
    status = await handle.query("status")
    while status["phase"] != "idle" or status["inbox"] > 0:
        await asyncio.sleep(0.05)
        status = await handle.query("status")

    # An update is answered with the outcome in numbers, None where there is nothing to do.
    outcome = await client.execute_update_with_start_workflow(
        "compact",
        {"note": "asked for by a Python program"},
        start_workflow_operation=WithStartWorkflowOperation(
            "session",
            start,
            id=workflow_id,
            task_queue=given.queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            priority=priority,
        ),
        rpc_timeout=timedelta(minutes=11),
    )
    print(json.dumps({"status": await handle.query("status"), "outcome": outcome}), flush=True)


asyncio.run(main())
# Threads of the SDK's native core may still run while the interpreter shuts down, which would abort a short program.
os._exit(0)
