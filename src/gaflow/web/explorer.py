"""What the server knows and does: its models, kept results and folders. It speaks Python; `api.py` speaks HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.export import as_json, flow_values
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import prepare_one
from gaflow.flow.arguments import as_networks
from gaflow.flow.barrier.solve import DEFAULT_EPSILON, solve
from gaflow.flow.editing import Edits, grouped
from gaflow.flow.maxflow.min_cut import min_cut
from gaflow.flow.maxflow.score_ranges import score_ranges
from gaflow.flow.result import Flow
from gaflow.flow.routes import Route, routes
from gaflow.html.flow_drawing import drawing_data, drawn_flows, row_data
from gaflow.methods import find_method
from gaflow.web.bodies import (
    CompareBody,
    CutBody,
    DifferenceBody,
    DrawingBody,
    ExplainBody,
    ExportBody,
    FlowBody,
    HeadsBody,
    MaskBody,
    PredictionsBody,
    RangesBody,
    RemoveBody,
    RoutesBody,
    SolveBody,
    TargetBody,
    TextBody,
)
from gaflow.web.differences import flow_difference
from gaflow.web.exports import export
from gaflow.web.kept import Kept
from gaflow.web.masking_curve import masking_curve
from gaflow.web.model_queue import ModelQueue, ModelTask
from gaflow.web.problems import HttpProblem
from gaflow.web.server_settings import ServerSettings
from gaflow.web.solver_pool import SolverPool
from gaflow.web.without_attention import head_amounts, run_without
from gaflow.web.work import Answer, Progress, Work, WorkList

_ATTRIBUTION = "attribution"


class Explorer:
    """The state of a server."""

    def __init__(self, settings: ServerSettings):
        self.settings = settings
        self.kept = Kept(settings.limits.kept_bytes)
        self.work = WorkList()
        self.runs = settings.runs
        self.queues: dict[str, ModelQueue] = {}
        for name, model in settings.model_names.items():
            self.queues[name] = ModelQueue(name, self._loader(model), settings.limits)
        self.solver = SolverPool(settings.limits)

    def close(self) -> None:
        """Stop all work, and end the threads."""
        self.work.stop_all()
        self.solver.close()
        for model_queue in self.queues.values():
            model_queue.close()

    def queue_of(self, model: str | None) -> ModelQueue:
        """The queue of a model that was named at start; None is the first."""
        name = next(iter(self.queues)) if model is None else model
        if name not in self.queues:
            names = ", ".join(self.queues)
            raise HttpProblem(404, f"this server has no model {name!r}, only {names}", "model")
        return self.queues[name]

    def explain(self, body: ExplainBody) -> Work:
        """Explain a text by one method."""
        method = None if body.method is None else find_method(body.method)

        def task(explainer: Explainer, progress: Progress) -> Answer:
            self._check_length(explainer, body)
            att = explainer(
                body.input,
                method,
                body.parsed_target,
                truncation=body.truncation,
                windows=body.windows,
                progress=progress,
            )
            return self._answer(att, queue.name, body.edges)

        queue = self.queue_of(body.model)
        return self._submit(queue, task)

    def compare(self, body: CompareBody) -> Work:
        """Explain a text by several methods."""
        limit = self.settings.limits.methods
        if len(body.methods) > limit:
            raise HttpProblem(422, f"methods has {len(body.methods)} names; this server takes {limit}", "methods")
        methods = [find_method(name, "methods") for name in body.methods]

        def task(explainer: Explainer, progress: Progress) -> Answer:
            self._check_length(explainer, body)
            compared = explainer.compare(
                body.input,
                methods,
                body.parsed_target,
                truncation=body.truncation,
                windows=body.windows,
                progress=progress,
            )
            results = {}
            for name, att in compared.items():
                results[name] = self._answer(att, queue.name, body.edges)
            return {"results": results}

        queue = self.queue_of(body.model)
        return self._submit(queue, task)

    def predictions(self, body: PredictionsBody) -> Work:
        """List the outputs that can be explained."""

        def task(explainer: Explainer, progress: Progress) -> Answer:
            self._check_length(explainer, body)
            outputs = explainer.predictions(body.input, body.count, truncation=body.truncation, windows=body.windows)
            predictions = []
            for output in outputs:
                predictions.append({"target": output.target, "label": output.label, "probability": output.probability})
            return as_json({"predictions": predictions})

        return self._submit(self.queue_of(body.model), task)

    def mask(self, body: MaskBody) -> Work:
        """Mask the tokens of largest score, and ask the model."""
        att, model = self._explained_here(body.id)

        def task(explainer: Explainer, progress: Progress) -> Answer:
            return masking_curve(explainer, att, body, progress)

        return self._submit(self.queue_of(model), task)

    def remove(self, body: RemoveBody) -> Work:
        """Run the model without some of its attention."""
        att, model = self._explained_here(body.id)
        return self._submit(self.queue_of(model), lambda explainer, _: run_without(explainer, att, body))

    def heads(self, body: HeadsBody) -> Work:
        """Trace the model once more, and tell the heads of edges apart."""
        att, model = self._explained_here(body.id)
        return self._submit(self.queue_of(model), lambda explainer, _: head_amounts(explainer, att, body))

    def export(self, body: ExportBody) -> tuple[bytes, str, str]:
        """A kept result as a file: content, media type and name."""
        att, _ = self.kept.get(body.id)
        return export(att, body.kind)

    def difference(self, body: DifferenceBody) -> Work:
        """Where the flows of two kept results differ."""
        first = self.flow_of(FlowBody(id=body.first, against=False))
        second = self.flow_of(FlowBody(id=body.second, against=False))
        return self._solve(lambda: flow_difference(first, second, body.pairs, body.edges))

    def solve(self, body: SolveBody) -> Work:
        """Change a network and solve it again."""
        if (body.id is None) == (body.capacities is None):
            raise HttpProblem(422, "give either the id of a kept result or capacities", "id")
        if body.capacities is not None:
            return self._solve(lambda: self._solve_capacities(body))
        att, model = self.kept.get(str(body.id))

        def task() -> Answer:
            edited = att.edit(**body.edits())
            if body.group_names:
                edited = _with_names(edited, body)
            return self._answer(edited, model, body.edges)

        return self._solve(task)

    def drawing(self, body: DrawingBody) -> Work:
        """The flows of a kept result between groups of its tokens."""
        att, _ = self.kept.get(body.id)
        if att.flow is None:
            raise HttpProblem(422, f"this result by {att.method!r} has no flow", "id")

        def task() -> Answer:
            groups = grouped(len(att.tokens), body.groups)
            return as_json({"methods": row_data(drawn_flows([(att.method, att)]), groups, body.edges)})

        return self._solve(task)

    def cut(self, body: CutBody) -> Work:
        """The minimum cut of a kept network."""
        flow = self.flow_of(body)

        def task() -> Answer:
            cut = min_cut(flow, nearest=body.nearest)
            return {
                "value": cut.value,
                "edges": [edge._asdict() for edge in cut.edges],
                "share": cut.share.tolist(),
                "bottleneck": cut.bottleneck,
                "nearest": cut.nearest,
                "unique": cut.unique,
                "dead": cut.dead,
            }

        return self._solve(task)

    def routes(self, body: RoutesBody) -> Work:
        """The widest routes of a kept flow."""
        flow = self.flow_of(body)

        def task() -> Answer:
            widest = routes(flow, body.k)
            listed = []
            for route in widest:
                narrowest = _narrowest_edge(flow, route)
                listed.append(
                    {"tokens": route.tokens, "amount": route.amount, "share": route.share, "narrowest": narrowest}
                )
            return {"routes": listed, "rest": widest.rest, "value": widest.value}

        return self._solve(task)

    def ranges(self, body: RangesBody) -> Work:
        """The least and largest scores over all maximum flows of a kept network."""
        flow = self.flow_of(body)

        def task() -> Answer:
            ranges = score_ranges(flow, layer=body.layer)
            return {"low": ranges.low.tolist(), "high": ranges.high.tolist(), "unique": bool(ranges.unique)}

        return self._solve(task)

    def run_of(self, name: str) -> Path:
        """The folder or file of a name."""
        if name not in self.runs:
            names = ", ".join(self.runs) or "none; pass folders by --open"
            raise HttpProblem(404, f"this server has no run {name!r}; it has {names}", "name")
        return self.runs[name]

    def keep(self, att: Attribution, edges: int) -> Answer:
        """The answer of an attribution that no model of this server made."""
        return self._answer(att, None, edges)

    def flow_of(self, body: FlowBody) -> Flow:
        """The flow of a kept result."""
        att, _ = self.kept.get(body.id)
        flow = att.flow_against if body.against else att.flow
        if flow is None:
            side = " against the output" if body.against else ""
            raise HttpProblem(422, f"this result by {att.method!r} has no flow{side}", "id")
        return flow

    def _solve_capacities(self, body: SolveBody) -> Answer:
        if body.groups is not None and isinstance(body.groups, str):
            raise HttpProblem(422, "groups by name are for results of texts; capacities take lists of tokens", "groups")
        with _named("information", "capacities"):
            try:
                information = torch.tensor(body.capacities, dtype=torch.float64)
            except (ValueError, TypeError):
                raise ArgumentError(Argument("capacities"), " must have shape (l, t, t)") from None
            self._check_count(information.shape[-1], "capacities")
            settings = body.edits()
            barrier = settings.pop("barrier") or "uniform"
            epsilon = settings.pop("epsilon")
            networks = as_networks(information)
            edits = Edits(**settings)
            real = torch.ones(networks.shape[0], networks.shape[-1], dtype=torch.bool)
            flow = solve(
                edits.capacity(networks),
                epsilon=DEFAULT_EPSILON if epsilon is None else epsilon,
                barrier=barrier,
                sources=edits.nodes("sources", real),
                targets=edits.nodes("targets", real),
            )
        return as_json({"flow": flow_values(flow), "certificate": flow.certificate[0].to_dict()})

    def _explained_here(self, key: str) -> tuple[Attribution, str]:
        """A kept result that a model of this server explained, and the model's name."""
        att, model = self.kept.get(key)
        if model is None:
            raise HttpProblem(
                422, "this result was opened from a file; explain its text by a model of this server", "id"
            )
        return att, model

    def _solve(self, task: Callable[[], Answer]) -> Work:
        work = self.solver.submit(task)
        self.work.add(work)
        return work

    def _submit(self, queue: ModelQueue, task: ModelTask) -> Work:
        work = queue.submit(task)
        self.work.add(work)
        return work

    def _answer(self, att: Attribution, model: str | None, edges: int) -> Answer:
        """An attribution as JSON, kept for what follows."""
        answer: Answer = {"id": self.kept.add(att, model), _ATTRIBUTION: att.to_dict()}
        if edges:
            flows = drawn_flows([(att.method, att)])
            names = [drawn.name for drawn in flows]
            answer["drawing"] = {"names": names, **as_json(drawing_data(flows, edges))}
        return answer

    def _check_length(self, explainer: Explainer, body: TextBody | TargetBody) -> None:
        """Refuse a text of more tokens than this server takes, before the model runs."""
        prepared = prepare_one(explainer.runner, body.input, None, truncation=body.truncation, windows=body.windows)
        self._check_count(len(prepared.encoding), "text")

    def _check_count(self, count: int, argument: str) -> None:
        limit = self.settings.limits.tokens
        if count > limit:
            raise HttpProblem(413, f"{argument} has {count} tokens; this server takes {limit}", argument)

    def _loader(self, model: str | None) -> Callable[[], Explainer]:
        settings = self.settings

        def load() -> Explainer:
            return Explainer(model, device=settings.device, trust_remote_code=settings.trust_remote_code)

        return load


def _narrowest_edge(flow: Flow, route: Route) -> tuple[int, int, int] | None:
    """The edge (layer, i, j) of a route that carries the least; cutting it ends the route and as little else as can."""
    edges = flow.edges[0]
    carried = []
    for layer, (below, above) in enumerate(pairwise(route.tokens)):
        carried.append((edges[layer, above, below].item(), layer, above, below))
    if not carried:
        return None
    return min(carried)[1:]


def _with_names(att: Attribution, body: SolveBody) -> Attribution:
    """The attribution with names for its groups in place of their text."""
    if body.groups is None or isinstance(body.groups, str):
        raise HttpProblem(422, "names are for groups that are lists of tokens", "group_names")
    if len(body.group_names) > len(body.groups):
        counts = f"{len(body.group_names)} names for {len(body.groups)} groups"
        raise HttpProblem(422, f"{counts}; give at most one name for each", "group_names")
    members = [group for group in body.groups if group]
    joined = {token for group in members for token in group}
    # nodes are ordered by their first token, whether they are groups or single tokens
    single = [token for token in range(len(att.tokens) + len(joined) - len(members)) if token not in joined]
    firsts = sorted([*single, *(min(group) for group in members)])
    tokens = list(att.tokens)
    for group, name in zip(body.groups, body.group_names, strict=False):
        if group and name:
            tokens[firsts.index(min(group))] = name
    return replace(att, tokens=tuple(tokens))


@contextmanager
def _named(argument: str, key: str) -> Iterator[None]:
    """Errors about an argument of the library name the key of the request that it comes from."""
    try:
        yield
    except GaflowError as error:
        if error.argument != argument:
            raise
        detail = error.worded(lambda mentioned: key if mentioned.name == argument else str(mentioned))
        raise HttpProblem(422, detail, key) from error
