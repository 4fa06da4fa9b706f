"""What the server knows and does: its models, kept results and folders. It speaks Python; `api.py` speaks HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.export import as_json, flow_values
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.evaluation.faithfulness import CONTROL, evaluate
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import prepare_one
from gaflow.flow.arguments import as_networks
from gaflow.flow.barrier.solve import DEFAULT_EPSILON, solve
from gaflow.flow.editing import Edits
from gaflow.flow.maxflow.min_cut import min_cut
from gaflow.flow.maxflow.score_ranges import score_ranges
from gaflow.flow.result import Flow
from gaflow.flow.routes import routes
from gaflow.flow.threads import one_core
from gaflow.html.flow_drawing import drawing_data, drawn_flows
from gaflow.methods import find_method
from gaflow.web.bodies import (
    CompareBody,
    CutBody,
    ExplainBody,
    FlowBody,
    MaskBody,
    PredictionsBody,
    RangesBody,
    RoutesBody,
    SolveBody,
    TargetBody,
    TextBody,
)
from gaflow.web.kept import Kept
from gaflow.web.model_queue import ModelQueue, ModelTask
from gaflow.web.problems import HttpProblem, busy
from gaflow.web.server_settings import ServerSettings
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
        self._solvers = threading.Semaphore(settings.limits.solves)
        self._waiting = threading.BoundedSemaphore(settings.limits.solves + settings.limits.queue)

    def close(self) -> None:
        """Stop all work, and end the threads."""
        self.work.stop_all()
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
        att, model = self.kept.get(body.id)
        if model is None:
            raise HttpProblem(
                422, "this result was opened from a file; explain its text by a model of this server", "id"
            )

        def task(explainer: Explainer, progress: Progress) -> Answer:
            text = att.text if att.text_pair is None else (att.text, att.text_pair)
            evaluation = evaluate(
                explainer,
                [text],
                methods=[],
                scores={_ATTRIBUTION: [att]},
                order="top",
                levels=sorted(set(body.levels)),
                replacement=body.replacement,
                eraser=False,
                truncation=att.truncated,
                progress=progress,
            )
            probabilities = np.exp(evaluation.masked[:, 0])
            of_method = dict(zip(evaluation.methods, probabilities.tolist(), strict=True))
            predicted = evaluation.prediction[evaluation.methods.index(_ATTRIBUTION), 0]
            return {
                "levels": list(evaluation.levels),
                "unmasked": float(np.exp(evaluation.base[0])),
                "probability": of_method[_ATTRIBUTION],
                "random": of_method[CONTROL],
                "prediction": [evaluation.classes[index] for index in predicted.tolist()],
            }

        return self._submit(self.queue_of(model), task)

    def solve(self, body: SolveBody) -> Answer:
        """Change a network and solve it again."""
        if (body.id is None) == (body.capacities is None):
            raise HttpProblem(422, "give either the id of a kept result or capacities", "id")
        if body.capacities is not None:
            return self._solve_capacities(body)
        att, model = self.kept.get(str(body.id))
        with self.solving():
            edited = att.edit(**body.edits())
        return self._answer(edited, model, body.edges)

    def cut(self, body: CutBody) -> Answer:
        """The minimum cut of a kept network."""
        flow = self.flow_of(body)
        with self.solving():
            cut = min_cut(flow, nearest=body.nearest)
        edges = [edge._asdict() for edge in cut.edges]
        return {
            "value": cut.value,
            "edges": edges,
            "share": cut.share.tolist(),
            "bottleneck": cut.bottleneck,
            "nearest": cut.nearest,
            "unique": cut.unique,
            "dead": cut.dead,
        }

    def routes(self, body: RoutesBody) -> Answer:
        """The widest routes of a kept flow."""
        flow = self.flow_of(body)
        with self.solving():
            widest = routes(flow, body.k)
        listed = [{"tokens": route.tokens, "amount": route.amount, "share": route.share} for route in widest]
        return {"routes": listed, "rest": widest.rest, "value": widest.value}

    def ranges(self, body: RangesBody) -> Answer:
        """The least and largest scores over all maximum flows of a kept network."""
        flow = self.flow_of(body)
        with self.solving():
            ranges = score_ranges(flow, layer=body.layer)
        return {"low": ranges.low.tolist(), "high": ranges.high.tolist(), "unique": bool(ranges.unique)}

    def run_of(self, name: str) -> Path:
        """The folder or file of a name."""
        if name not in self.runs:
            names = ", ".join(self.runs) or "none; pass folders by --open"
            raise HttpProblem(404, f"this server has no run {name!r}; it has {names}", "name")
        return self.runs[name]

    def keep(self, att: Attribution) -> Answer:
        """The answer of an attribution that no model of this server made."""
        return self._answer(att, None, 0)

    def flow_of(self, body: FlowBody) -> Flow:
        """The flow of a kept result."""
        att, _ = self.kept.get(body.id)
        flow = att.flow_against if body.against else att.flow
        if flow is None:
            side = " against the output" if body.against else ""
            raise HttpProblem(422, f"this result by {att.method!r} has no flow{side}", "id")
        return flow

    @contextmanager
    def solving(self) -> Iterator[None]:
        """A place at the solver; 429 where too many wait."""
        if not self._waiting.acquire(blocking=False):
            raise busy("the solver")
        try:
            with self._solvers, one_core():
                yield
        finally:
            self._waiting.release()

    def _solve_capacities(self, body: SolveBody) -> Answer:
        if body.groups is not None and isinstance(body.groups, str):
            raise HttpProblem(422, "groups by name are for results of texts; capacities take lists of tokens", "groups")
        with self.solving(), _named("information", "capacities"):
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
