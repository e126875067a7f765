"""The fields that a RayJob of this project may have, by the places where they stand.

A schema in the form that a CustomResourceDefinition has, written by hand after KubeRay's API reference (ray.io/v1,
release 1.6) and that of Kubernetes (PodSpec, Container, core v1): names, and the types of values. Fields that no
manifest here needs are left out, so that `crd.problems` refuses them. `make kuberay-test` compares it with KubeRay's.
"""

from __future__ import annotations

from typing import Any

TEXT, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}


def record(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields."""
    return {"type": "object", "properties": fields, "required": list(required)}


def each(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


QUANTITIES = {"type": "object", "additionalProperties": TEXT}
"""Resources by name, in Kubernetes' notation, such as 8Gi."""
CONTAINER = record(
    ("name", "image"),
    name=TEXT,
    image=TEXT,
    imagePullPolicy=one_of("Always", "IfNotPresent", "Never"),
    env=each(record(("name", "value"), name=TEXT, value=TEXT)),
    resources=record(requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts=each(record(("name", "mountPath"), name=TEXT, mountPath=TEXT, readOnly=BOOLEAN)),
)
VOLUME = record(
    ("name", "persistentVolumeClaim"),
    name=TEXT,
    persistentVolumeClaim=record(("claimName",), claimName=TEXT, readOnly=BOOLEAN),
)
POD = record(
    ("spec",),
    spec=record(
        ("containers",),
        containers=each(CONTAINER),
        volumes=each(VOLUME),
        serviceAccountName=TEXT,
        nodeSelector={"type": "object", "additionalProperties": TEXT},
        tolerations=each(record(key=TEXT, operator=one_of("Exists", "Equal"), value=TEXT, effect=TEXT)),
        terminationGracePeriodSeconds=INTEGER,
    ),
)
START = {"type": "object", "additionalProperties": TEXT}
"""Options of `ray start`, all of them text."""
WORKERS = record(
    ("groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"),
    groupName=TEXT,
    replicas=INTEGER,
    minReplicas=INTEGER,
    maxReplicas=INTEGER,
    numOfHosts=INTEGER,
    rayStartParams=START,
    template=POD,
)
CLUSTER = record(
    ("rayVersion", "headGroupSpec", "workerGroupSpecs"),
    rayVersion=TEXT,
    authOptions=record(("mode",), mode=one_of("disabled", "token")),
    headGroupSpec=record(("rayStartParams", "template"), rayStartParams=START, template=POD),
    workerGroupSpecs=each(WORKERS),
)
RAY_JOB = record(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion=one_of("ray.io/v1"),
    kind=one_of("RayJob"),
    metadata=record(("name",), name=TEXT, namespace=TEXT, labels={"type": "object", "additionalProperties": TEXT}),
    spec=record(
        ("entrypoint", "rayClusterSpec"),
        entrypoint=TEXT,
        backoffLimit=INTEGER,
        submissionMode=one_of("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"),
        shutdownAfterJobFinishes=BOOLEAN,
        ttlSecondsAfterFinished=INTEGER,
        activeDeadlineSeconds=INTEGER,
        suspend=BOOLEAN,
        rayClusterSpec=CLUSTER,
    ),
)
"""In the place of a CustomResourceDefinition's `openAPIV3Schema`."""
