"""Tests the objects of deploy/kubernetes and those that the Helm chart makes."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import kubernetes_validate
import yaml

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
CHART = DEPLOY / "helm/tollgate"
VERSIONS = ["1.30", "1.33", "1.37"]
"""The oldest that the documents name, and newer ones."""
SCHEMALESS = {"ServiceMonitor"}
"""Objects of other projects."""

EVERYTHING = {
    "replicas": 5,
    "image": {"repository": "registry.example.com/tollgate", "tag": "1.2.3"},
    "imagePullSecrets": [{"name": "registry"}],
    "secret": {"name": "stores"},
    "env": [{"name": "OPENAI_API_KEY", "valueFrom": {"secretKeyRef": {"name": "providers", "key": "openai"}}}],
    "config": '[server]\nlisten = "0.0.0.0:8443"\ntls = { cert = "/etc/tls/tls.crt", key = "/etc/tls/tls.key" }\n'
              '[operator]\nlisten = "0.0.0.0:9191"\n',
    "ports": {"http": 8443, "operator": 9191},
    "probes": {"scheme": "HTTPS"},
    "spool": {"volume": {"hostPath": {"path": "/var/lib/tollgate", "type": "Directory"}}},
    "service": {"type": "LoadBalancer", "annotations": {"example.com/a": "b"}},
    "operatorService": {"annotations": {"example.com/c": "d"}},
    "autoscaling": {"enabled": True, "maxReplicas": 7},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"example.com/e": "f"},
    "podLabels": {"team": "models"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "models", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}},
    "extraVolumes": [{"name": "authority", "secret": {"secretName": "authority"}}],
    "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/authority", "readOnly": True}],
}


def helm(*arguments):
    done = subprocess.run([os.environ["HELM"], *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"helm {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}"
    return done.stdout


def by_name(objects):
    """Objects by kind and name, of which each must be there once."""
    objects = [each for each in objects if each]
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects), [f"{each['kind']} {each['metadata']['name']}" for each in objects]
    return found


def rendered(values, release="tollgate"):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        return by_name(yaml.safe_load_all(helm("template", release, CHART, "--kube-version", "1.33", "--values", file.name)))


def secret_checksum(version):
    """The pods' annotation when a cluster whose secret has this version is installed to; `version` may be none."""
    metadata = {"name": "tollgate", "namespace": "default", "resourceVersion": version}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    kind = {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret", "verbs": ["get"]}
    known = {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [kind]},
    } | ({"/api/v1/namespaces/default/secrets/tollgate": secret} if version else {})
    missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

    class Cluster(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = known.get(self.path.split("?")[0])
            text = json.dumps(answer or missing).encode()
            self.send_response(200 if answer else 404)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Cluster) as cluster:
        threading.Thread(target=cluster.serve_forever, daemon=True).start()
        shown = helm("template", "tollgate", CHART, "--dry-run=server", "--namespace", "default",
                     "--kube-apiserver", f"http://127.0.0.1:{cluster.server_port}")
        cluster.shutdown()
    deployment = by_name(yaml.safe_load_all(shown))["Deployment", "tollgate"]
    return deployment["spec"]["template"]["metadata"]["annotations"].get("checksum/secret")


def notes_of(values):
    """What Helm prints after an installation. It does so only with a cluster, so here the text is a template of an object."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "tollgate"
        shutil.copytree(CHART, chart)
        (chart / "templates/NOTES.txt").rename(chart / "notes.txt")
        (chart / "templates/notes.yaml").write_text('notes: {{ tpl (.Files.Get "notes.txt") . | quote }}\n')
        (chart / "given.json").write_text(json.dumps(values))
        shown = helm("template", "tollgate", chart, "--kube-version", "1.33", "--values", chart / "given.json",
                     "--show-only", "templates/notes.yaml")
        return yaml.safe_load(shown)["notes"]


def manifests():
    """What `kubectl apply -k deploy` applies, but for the hash in the name of the configuration."""
    listed = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    objects = [each for name in listed["resources"] for each in yaml.safe_load_all((DEPLOY / name).read_text())]
    for config in listed["configMapGenerator"]:
        data = {Path(name).name: (DEPLOY / name).read_text() for name in config["files"]}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": config["name"]}, "data": data})
    return by_name(objects)


def validate(objects):
    for (kind, name), each in objects.items():
        if kind in SCHEMALESS:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                raise AssertionError(f"{kind} {name}, Kubernetes {version}: {error}") from error


def without_helms(value):
    """An object without the labels that Helm's charts have by convention, and without defaults written in full."""
    helms = {"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by",
             "app.kubernetes.io/component", "checksum/config"}
    defaults = {"type": "ClusterIP", "imagePullPolicy": "IfNotPresent", "scheme": "HTTP"}
    if isinstance(value, dict):
        kept = {key: without_helms(inner) for key, inner in value.items() if key not in helms and defaults.get(key) != inner}
        # A label of all objects, which the plain ones have where something selects by it.
        name = {"app.kubernetes.io/name": "tollgate"}
        return {key: inner for key, inner in kept.items() if inner != {} and not (key == "labels" and inner == name)}
    if isinstance(value, list):
        return [without_helms(inner) for inner in value]
    return value


def selectors_match(objects):
    """Whatever selects pods selects those of the deployment, and the monitor one service."""
    pod = next(each for (kind, _), each in objects.items() if kind == "Deployment")["spec"]["template"]["metadata"]["labels"]
    services = [each for (kind, _), each in objects.items() if kind == "Service"]
    for (kind, name), each in objects.items():
        spec = each.get("spec", {})
        selector = spec.get("selector")
        if kind == "ServiceMonitor":
            wanted = selector["matchLabels"].items()
            chosen = [service for service in services if wanted <= service["metadata"]["labels"].items()]
            assert len(chosen) == 1 and chosen[0]["spec"]["ports"][0]["name"] == spec["endpoints"][0]["port"]
        elif selector:
            # A label with a version would leave pods out while it changes.
            stable = {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
            assert selector.get("matchLabels", selector).keys() <= stable, f"{kind} {name}: {selector}"
            assert selector.get("matchLabels", selector).items() <= pod.items(), f"{kind} {name}: {selector}"


def pod_and_config(objects):
    deployment = next(each for (kind, _), each in objects.items() if kind == "Deployment")
    config = next(each for (kind, _), each in objects.items() if kind == "ConfigMap")
    return deployment["spec"]["template"]["spec"], tomllib.loads(config["data"]["tollgate.toml"])


def listeners_fit(objects):
    """Ports and probes are those of the listeners in the configuration, and services lead to them."""
    pod, config = pod_and_config(objects)
    [container] = pod["containers"]
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert ports == {"http": config["server"]["listen"].split(":")[1], "operator": config["operator"]["listen"].split(":")[1]}
    scheme = "HTTPS" if "tls" in config["server"] else "HTTP"
    for name in ["startupProbe", "readinessProbe", "livenessProbe"]:
        probe = container[name]["httpGet"]
        assert (probe["port"], probe.get("scheme", "HTTP")) == ("http", scheme), f"{name}: {probe}"
    targets = {port["targetPort"] for (kind, _), each in objects.items() if kind == "Service" for port in each["spec"]["ports"]}
    assert targets == ports.keys()
    # The image is for one kind of processors.
    assert pod["nodeSelector"]["kubernetes.io/arch"] == "amd64"
    assert "FROM --platform=linux/amd64 " in (DEPLOY / "Dockerfile").read_text()


def gateways_fit(objects):
    """Folders and times of the pods are those of the configuration they mount."""
    pod, config = pod_and_config(objects)
    [container] = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"][-1] == f"{mounts['config']}/tollgate.toml"
    # A relative path would be in the folder of the configuration, which is read-only.
    assert config["store"]["spool"].startswith(f"{mounts['spool']}/") and "url" not in config["store"]
    variables = {variable["name"] for variable in container["env"]}
    assert variables == {"TOLLGATE__STORE__URL", "TOLLGATE__LIMITS__URL", "TOLLGATE_OPERATOR_TOKEN"}
    stop = container["lifecycle"]["preStop"]["sleep"]["seconds"] + config["server"]["shutdown_grace_seconds"]
    assert pod["terminationGracePeriodSeconds"] > stop
    # The image has no other program, and its user is this one.
    assert "exec" not in json.dumps(container)
    assert f"USER {pod['securityContext']['runAsUser']}:" in (DEPLOY / "Dockerfile").read_text()


def versions_agree():
    """The chart, the image and the documents name the version that is built."""
    version = tomllib.loads((DEPLOY.parent / "Cargo.toml").read_text())["package"]["version"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version
    pages = ["deploy/README.md", "deploy/kubernetes/deployment.yaml"]
    for page in pages:
        named = re.findall(r"tollgate(?:_|-|:)(\d+\.\d+\.\d+)", (DEPLOY.parent / page).read_text())
        assert named and set(named) == {version}, f"{page}: {named}, and not {version}"


def main():
    versions_agree()
    helm("lint", "--strict", CHART)
    plain, chart = manifests(), rendered({})
    for objects in [plain, chart]:
        validate(objects)
        selectors_match(objects)
        listeners_fit(objects)
        gateways_fit(objects)
    secret = yaml.safe_load((DEPLOY / "kubernetes/secret.example.yaml").read_text())
    validate(by_name([secret]))
    named = yaml.safe_load((CHART / "values.yaml").read_text())["secret"]
    assert (secret["metadata"]["name"], set(secret["stringData"])) == (named["name"], set(named["keys"].values()))

    # The chart makes what the plain objects are.
    assert plain.keys() == chart.keys(), (plain.keys(), chart.keys())
    for key, each in plain.items():
        ours, theirs = without_helms(each), without_helms(chart[key])
        if key[0] == "ConfigMap":
            # But for its comments.
            ours, theirs = ({name: tomllib.loads(text) for name, text in one["data"].items()} for one in [ours, theirs])
        assert ours == theirs, f"{key}:\n{json.dumps(ours, indent=1)}\n{json.dumps(theirs, indent=1)}"

    everything = rendered(EVERYTHING, "live")
    validate(everything)
    selectors_match(everything)
    listeners_fit(everything)
    assert {kind for kind, _ in everything} == {kind for kind, _ in plain} | {"HorizontalPodAutoscaler", "ServiceMonitor"}
    assert {name for _, name in everything} == {"live-tollgate", "live-tollgate-operator"}
    deployment = everything["Deployment", "live-tollgate"]["spec"]
    pod = deployment["template"]["spec"]
    assert "replicas" not in deployment, "the autoscaler and the chart would both set the number"
    assert pod["containers"][0]["image"] == "registry.example.com/tollgate:1.2.3"
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64", "disk": "ssd"}
    # In place of the default, which Helm would keep beside it.
    assert pod["volumes"][1] == {"name": "spool", "hostPath": EVERYTHING["spool"]["volume"]["hostPath"]}
    larger = rendered({"spool": {"volume": {"emptyDir": {"sizeLimit": "1Gi"}}}})["Deployment", "tollgate"]
    assert larger["spec"]["template"]["spec"]["volumes"][1] == {"name": "spool", "emptyDir": {"sizeLimit": "1Gi"}}
    sums = [objects["Deployment", name]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for objects, name in [(chart, "tollgate"), (everything, "live-tollgate")]]
    assert sums[0] != sums[1]
    assert everything["HorizontalPodAutoscaler", "live-tollgate"]["spec"]["scaleTargetRef"]["name"] == "live-tollgate"

    # A replaced secret rolls through the gateways with the next upgrade, where Helm can see it.
    assert [secret_checksum(version) for version in ["7", "8", None]] == ["7", "8", None]

    # The notes: of a release without its secret, which has the simulator.
    notes = notes_of({})
    assert "kubectl create secret generic tollgate" in notes and "SIMULATOR" in notes, notes
    assert "at http://tollgate" in notes, notes
    notes = notes_of(EVERYTHING)
    assert "SIMULATOR" not in notes and "at https://tollgate" in notes, notes
    print(f"kubernetes: {len(plain)} objects and a chart that makes them, against the schemas of {', '.join(VERSIONS)}; all passed")


if __name__ == "__main__":
    main()
