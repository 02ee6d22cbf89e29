/* Kubernetes, by Kubeflow's operators: an MPIJob (kubeflow.org/v2beta1) around trainyard-worker, a
 * PyTorchJob (kubeflow.org/v1) around a training script. Source: the resource definitions in
 * kubeflow/mpi-operator manifests/base and kubeflow/training-operator manifests/base/crds. */
#include "launch.h"

#include <string.h>

/* A ConfigMap holds at most 1 MiB, keys and all: Kubernetes documentation, "ConfigMaps". */
#define LARGEST_CONFIG_BYTES (1000u * 1000u)
#define ACCELERATOR_RESOURCE "nvidia.com/gpu"

static void write_image(const launch *l, ty_text *text)
{
    if (l->input->image != NULL)
        ty_text_addf(text, "%s\n", l->input->image);
    else
        ty_text_addf(text, "trainyard:%s\n", l->input->version);
}

static ty_status check_image(const launch *l, const char *target, ty_error *error)
{
    if (l->input->image == NULL)
        return l->input->version != NULL
                   ? TY_OK
                   : ty_fail(error, TY_EINVAL, "--to %s needs an image", target);
    if (l->input->image[0] == '\0' || strpbrk(l->input->image, " \t\r\n#'\"{}[],&*") != NULL)
        return ty_fail(error, TY_EINVAL, "--image: found '%.80s', expected the name of an image",
                       l->input->image);
    return TY_OK;
}

static void write_config(const launch *l, const char *key, const char *content, ty_text *text)
{
    ty_text_addf(text, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  %s: |\n",
                 l->name, key);
    ty_launch_yaml_block(content, 4, text);
    ty_text_add(text, "---\n");
}

static void write_claim(const launch *l, ty_text *text)
{
    ty_text_addf(text,
                 "# Where the run file goes; every worker writes here.\n"
                 "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: %s\nspec:\n"
                 "  accessModes: [ReadWriteMany]\n  resources:\n    requests:\n"
                 "      storage: 1Gi\n---\n",
                 l->name);
}

static void write_environment(const launch *l, ty_text *text)
{
    launch_variable variables[LAUNCH_MOST_VARIABLES];
    uint32_t count = ty_launch_environment(l, variables);

    ty_text_add(text, "              env:\n");
    for (uint32_t v = 0; v < count; v++)
        ty_text_addf(text, "                - name: %s # %s\n                  value: \"%s\"\n",
                     variables[v].name, variables[v].why, variables[v].value);
}

static void write_resources(const launch *l, ty_text *text)
{
    if (l->has_accelerators)
        ty_text_addf(text,
                     "              resources:\n                limits:\n"
                     "                  " ACCELERATOR_RESOURCE ": %u\n",
                     l->per_host);
    else
        ty_text_addf(text,
                     "              resources:\n                limits:\n"
                     "                  cpu: %u\n",
                     l->per_host);
}

/* ---- MPIJob ------------------------------------------------------------------------------ */

static void write_volumes(const launch *l, bool is_in_config, ty_text *text)
{
    ty_text_add(text, "              volumeMounts:\n"
                      "                - name: output\n                  mountPath: /output\n");
    if (is_in_config)
        ty_text_add(text, "                - name: job\n                  mountPath: /job\n");
    ty_text_addf(text,
                 "          volumes:\n            - name: output\n"
                 "              persistentVolumeClaim:\n                claimName: %s\n",
                 l->name);
    if (is_in_config)
        ty_text_addf(text,
                     "            - name: job\n              configMap:\n"
                     "                name: %s\n",
                     l->name);
}

static void write_launcher(const launch *l, bool is_in_config, ty_text *text)
{
    launch_variable variables[LAUNCH_MOST_VARIABLES];
    uint32_t count = ty_launch_environment(l, variables);

    ty_text_add(text, "    Launcher:\n      replicas: 1\n      template:\n        spec:\n"
                      "          restartPolicy: Never\n          containers:\n"
                      "            - name: launcher\n              image: ");
    write_image(l, text);
    ty_text_addf(text,
                 "              command: [mpirun, \"-n\", \"%u\", --map-by, slot, --bind-to, none, "
                 "--wdir, /output",
                 l->process_count);
    for (uint32_t v = 0; v < count; v++)
        ty_text_addf(text, ", \"-x\", %s=%s", variables[v].name, variables[v].value);
    if (l->has_accelerators)
        /* A pod's devices are numbered from 0, and its processes have them in order. */
        ty_text_addf(text,
                     ", sh, \"-c\",\n                'export "
                     "CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK; exec "
                     "trainyard-worker %s']\n",
                     is_in_config ? "/job/job.json" : "/output/job.json");
    else
        ty_text_addf(text, ", trainyard-worker, %s]\n",
                     is_in_config ? "/job/job.json" : "/output/job.json");
}

static void write_workers(const launch *l, bool is_in_config, ty_text *text)
{
    ty_text_addf(text,
                 "    Worker:\n      replicas: %u\n      template:\n        spec:\n"
                 "          containers:\n            - name: worker\n              image: ",
                 l->host_count);
    write_image(l, text);
    write_environment(l, text);
    write_resources(l, text);
    write_volumes(l, is_in_config, text);
}

ty_status ty_launch_mpijob(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    bool is_in_config = strlen(l->input->job) <= LARGEST_CONFIG_BYTES;
    ty_text text = {0};

    TY_CHECK(ty_launch_check_blocks(l, "k8s-mpijob", error), status, cleanup);
    TY_CHECK(check_image(l, "k8s-mpijob", error), status, cleanup);
    ty_launch_comments(l, "# ", &text);
    if (is_in_config)
        write_config(l, "job.json", l->input->job, &text);
    else
        ty_text_add(&text, "# The job file is too large for a ConfigMap: copy job.json into the "
                           "volume below.\n");
    write_claim(l, &text);
    ty_text_addf(&text,
                 "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: %s\nspec:\n"
                 "  slotsPerWorker: %u\n  runPolicy:\n    cleanPodPolicy: Running\n"
                 "  mpiReplicaSpecs:\n",
                 l->name, l->per_host);
    write_launcher(l, is_in_config, &text);
    write_workers(l, is_in_config, &text);
    TY_CHECK(ty_launch_add(l, "mpijob.yaml", &text, false, error), status, cleanup);
    if (!is_in_config)
        TY_CHECK(ty_launch_add_job(l, error), status, cleanup);
    status = ty_launch_next(l, error, "kubectl apply -f mpijob.yaml");

cleanup:
    ty_text_clear(&text);
    return status;
}

/* ---- PyTorchJob -------------------------------------------------------------------------- */

static void write_replicas(const launch *l, const char *kind, uint32_t count, ty_text *text)
{
    const char *script = l->input->script != NULL ? l->input->script : "train.py";

    ty_text_addf(text,
                 "    %s:\n      replicas: %u\n      restartPolicy: OnFailure\n      template:\n"
                 "        spec:\n          containers:\n            - name: pytorch\n"
                 "              image: ",
                 kind, count);
    write_image(l, text);
    /* The operator gives torchrun its PET_* variables: hosts, processes, rendezvous. */
    ty_text_add(text, "              command: [torchrun, ");
    ty_text_addf(text, "\"%s\"]\n", script);
    write_environment(l, text);
    ty_text_add(text, "                - name: PYTHONPATH\n                  value: \"/plan\"\n");
    write_resources(l, text);
    ty_text_addf(text,
                 "              volumeMounts:\n                - name: plan\n"
                 "                  mountPath: /plan\n          volumes:\n            - name: "
                 "plan\n              configMap:\n                name: %s\n",
                 l->name);
}

ty_status ty_launch_pytorchjob(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0}, settings = {0};

    TY_CHECK(ty_launch_check_data_parallel(l, "k8s-pytorchjob", 3, error), status, cleanup);
    TY_CHECK(check_image(l, "k8s-pytorchjob", error), status, cleanup);
    ty_launch_settings(l, false, &settings);
    TY_CHECK(ty_text_check(&settings, error), status, cleanup);
    ty_launch_comments(l, "# ", &text);
    write_config(l, "trainyard_plan.py", settings.data, &text);
    ty_text_addf(&text,
                 "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: %s\nspec:\n"
                 "  nprocPerNode: \"%u\"\n  runPolicy:\n    cleanPodPolicy: None\n"
                 "  pytorchReplicaSpecs:\n",
                 l->name, l->per_host);
    write_replicas(l, "Master", 1, &text);
    if (l->host_count > 1)
        write_replicas(l, "Worker", l->host_count - 1, &text);
    TY_CHECK(ty_launch_add(l, "pytorchjob.yaml", &text, false, error), status, cleanup);
    status = ty_launch_next(l, error, "kubectl apply -f pytorchjob.yaml");

cleanup:
    ty_text_clear(&settings);
    ty_text_clear(&text);
    return status;
}
