/*
 * A stand-in for NCCL between the emulated devices of one process. Calls put kernels on streams,
 * which stay on their devices until those of all peers are there. It emulates the hangs of NCCL
 * 2.28. A communicator, and a rank's first use of an algorithm or of a peer, is in progress until
 * the others have come as far (NCCL_RUNTIME_CONNECT=0 connects algorithms at the start). Messages
 * are matched by their order only. Waiting for a lost peer never ends, and no asynchronous error
 * reports it (as over NVLink).
 *
 * Invalid use is reported: communicators that block their callers, calls while one is in progress,
 * calls that do not match, memory or communicators released under a kernel, communicators released
 * while graphs have their kernels, communicators launched in orders that contradict each other
 * across devices, a kernel launched after another of its communicator that is still running,
 * communicators left at the end.
 *
 * TRAINYARD_EMULATED_NCCL=FOLDER: ranks are processes, and their inputs to a collective or a
 * message are in files of that folder, which must be empty at first. Then only the inputs are
 * compared; the rules of order and of first uses apply to ranks of one process.
 */
#include "emulated_device.h"
#include "emulated_queue.h"

#include <nccl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <vector>

extern "C" {
void ty_half_add(uint16_t *target, const uint16_t *source, uint64_t count);
void ty_bfloat_add(uint16_t *target, const uint16_t *source, uint64_t count);
}

namespace
{
enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, REDUCE, BROADCAST, SEND, RECEIVE };
const char *const names[] = {"all-reduce", "all-gather", "reduce-scatter", "reduce",
                             "broadcast",  "send",       "receive"};

struct call {
    kind what;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int other; /* root or peer */
};

struct world;
struct nccl_kernel;

struct arrival { /* arrival of a member at a collective or a message */
    nccl_kernel *kernel = nullptr;
    const call *of = nullptr;
};

/* Identifies the n-th collective, or the n-th message between two ranks. */
typedef std::tuple<int, int, unsigned long> place;
const int everybody = -1;

struct world {
    int size, serial;
    std::string name;
    std::string files; /* prefix of their names, if members are processes; otherwise empty */
    std::vector<ncclComm_t> members; /* NULL: not there yet, or left */
    std::vector<int> devices;
    int joined = 0;
    std::map<place, std::vector<arrival>> meetings;
    std::map<std::string, std::set<int>> connections; /* members that have arrived */
};
} // namespace

struct ncclComm {
    std::shared_ptr<world> of;
    int rank;
    std::map<std::pair<int, int>, unsigned long> counts;    /* calls so far: kind of place */
    std::set<nccl_kernel *> kernels;                        /* launched and not over, */
    size_t launched = 0;                                    /* and how many in all */
    unsigned long graph = 0;                                /* that launched the latest kernel */
    std::shared_ptr<int> graphs = std::make_shared<int>(0); /* that have kernels of it */
    /* In progress: the wait for the other members, and the launches after it. */
    emulated_waiter *waits = nullptr;
    cudaStream_t stream = nullptr;
    std::vector<call> calls;
};

namespace
{
/* All with the lock of the devices; never freed. */
struct registry {
    std::map<std::string, std::shared_ptr<world>> worlds; /* by identifier, until all joined */
    int made = 0, open = 0;
    unsigned long identifiers = 0;
    /* The latest launch of each device, and all launches that followed another one on some device:
     * a communicator and the number of its earlier launches. */
    std::map<int, std::pair<int, size_t>> latest;
    std::map<std::pair<int, size_t>, std::vector<std::pair<int, size_t>>> followers;
};

registry &all()
{
    static registry *const made = new registry;

    return *made;
}

struct leak_check {
    ~leak_check()
    {
        if (all().open != 0)
            printf("FAIL emulator: %d communicators are left\n", all().open);
    }
} at_end;

/* ---- Numbers ---- */

size_t bytes_of(ncclDataType_t type)
{
    return type == ncclDouble                         ? 8
           : type == ncclFloat                        ? 4
           : type == ncclHalf || type == ncclBfloat16 ? 2
                                                      : 1;
}

void numbers_add(const call &like, char *to, const char *from, size_t count)
{
    if (like.type == ncclHalf)
        ty_half_add((uint16_t *)to, (const uint16_t *)from, count);
    else if (like.type == ncclBfloat16)
        ty_bfloat_add((uint16_t *)to, (const uint16_t *)from, count);
    else if (like.type == ncclDouble)
        for (size_t i = 0; i < count; i++)
            ((double *)to)[i] += ((const double *)from)[i];
    else if (like.type == ncclFloat && like.op == ncclMax)
        for (size_t i = 0; i < count; i++)
            ((float *)to)[i] = std::max(((float *)to)[i], ((const float *)from)[i]);
    else if (like.type == ncclFloat)
        for (size_t i = 0; i < count; i++)
            ((float *)to)[i] += ((const float *)from)[i];
    else
        emulated_broken("NCCL: sums of type %d", (int)like.type);
}

/* ---- Kernels ---- */

void meeting_look(world *of, const place &at);
bool files_meet(const world *of, const place &at, const call &own, int rank);
void file_bring(const world *of, const place &at, const call &own, int rank);

struct nccl_kernel final : resident_kernel {
    ncclComm_t comm;
    std::shared_ptr<world> of;
    int rank;
    std::vector<call> calls;
    std::vector<place> places;
    mutable size_t left;
    mutable std::vector<bool> is_met; /* between processes, whose arrival is polled */
    bool is_resident = false, is_aborted = false;

    void arrive() override
    {
        is_resident = true;
        if (!of->files.empty()) {
            is_met.assign(calls.size(), false);
            for (size_t i = 0; i < calls.size(); i++)
                file_bring(of.get(), places[i], calls[i], rank);
            return;
        }
        for (size_t i = 0; i < calls.size() && !is_aborted; i++) {
            std::vector<arrival> &met = of->meetings[places[i]];
            const bool is_message = std::get<0>(places[i]) != everybody;
            met.resize(is_message ? 2 : (size_t)of->size);
            met[is_message ? calls[i].what == RECEIVE : (size_t)rank] = {this, &calls[i]};
        }
        for (size_t i = 0; i < calls.size() && !is_aborted; i++)
            meeting_look(of.get(), places[i]);
    }
    bool is_complete() const override
    {
        const emulated_access access; /* whoever looks */

        for (size_t i = 0; i < is_met.size() && !is_aborted; i++)
            if (!is_met[i] && files_meet(of.get(), places[i], calls[i], rank)) {
                is_met[i] = true;
                left--;
            }
        return left == 0 || is_aborted;
    }
    void leave() override
    {
        if (comm != nullptr)
            comm->kernels.erase(this);
    }
    void describe(char *text, size_t size) const override
    {
        int at =
            snprintf(text, size, "NCCL \"%s\" %d member %d:", of->name.c_str(), of->serial, rank);
        for (size_t i = 0; i < calls.size() && at > 0 && (size_t)at < size; i++)
            at += snprintf(text + at, size - (size_t)at, " %s of %zu (%d, the %lu.)",
                           names[calls[i].what], calls[i].count, calls[i].other,
                           std::get<2>(places[i]));
    }
};

bool is_alike(const call &a, const call &b)
{
    if (a.what == SEND || a.what == RECEIVE)
        return a.count == b.count && a.type == b.type;
    return a.what == b.what && a.count == b.count && a.type == b.type && a.op == b.op &&
           a.other == b.other;
}

void collective_run(const std::vector<arrival> &met)
{
    const call &first = *met[0].of;
    const size_t size = bytes_of(first.type), part = first.count * size, n = met.size();
    const bool is_sum =
        first.what == ALL_REDUCE || first.what == REDUCE_SCATTER || first.what == REDUCE;
    const size_t brought = first.what == REDUCE_SCATTER ? n * part : part;
    std::vector<std::vector<char>> in;
    std::vector<char> result;

    for (const arrival &a : met)
        in.emplace_back((const char *)a.of->in, (const char *)a.of->in + brought);
    if (is_sum) {
        result = in[0];
        for (size_t m = 1; m < n; m++)
            numbers_add(first, result.data(), in[m].data(), brought / size);
    }
    for (size_t m = 0; m < n; m++) {
        char *out = (char *)met[m].of->out;
        if (out == nullptr) /* another process's */
            continue;
        if (first.what == ALL_REDUCE || (first.what == REDUCE && (int)m == first.other))
            memcpy(out, result.data(), part);
        else if (first.what == REDUCE_SCATTER)
            memcpy(out, result.data() + m * part, part);
        else if (first.what == BROADCAST)
            memcpy(out, in[(size_t)first.other].data(), part);
        for (size_t from = 0; first.what == ALL_GATHER && from < n; from++)
            memcpy(out + from * part, in[from].data(), part);
    }
}

/* Whether all have arrived; then the operation runs at once. */
void meeting_look(world *of, const place &at)
{
    const std::vector<arrival> met = of->meetings[at];

    for (const arrival &a : met)
        if (a.kernel == nullptr)
            return;
    for (const arrival &a : met)
        if (!is_alike(*met[0].of, *a.of))
            emulated_broken("NCCL \"%s\": %s of %zu of type %d meets %s of %zu of type %d",
                            of->name.c_str(), names[met[0].of->what], met[0].of->count,
                            (int)met[0].of->type, names[a.of->what], a.of->count, (int)a.of->type);
    if (std::get<0>(at) != everybody)
        memmove(met[1].of->out, met[0].of->in, met[0].of->count * bytes_of(met[0].of->type));
    else
        collective_run(met);
    for (const arrival &a : met)
        a.kernel->left--;
    of->meetings.erase(at);
    emulated_changed();
}

/* ---- Between processes ---- */

const char *files_folder()
{
    return getenv("TRAINYARD_EMULATED_NCCL");
}

/* Written completely or not at all. */
void file_write(const std::string &path, const void *head, size_t head_bytes, const void *data,
                size_t bytes)
{
    const std::string unfinished = path + ".new";
    FILE *file = fopen(unfinished.c_str(), "wb");
    const bool is_written = file != nullptr && fwrite(head, 1, head_bytes, file) == head_bytes &&
                            fwrite(data, 1, bytes, file) == bytes;

    if (file == nullptr || fclose(file) != 0 || !is_written ||
        rename(unfinished.c_str(), path.c_str()) != 0)
        emulated_broken("NCCL: %s: %s", path.c_str(), strerror(errno));
}

std::string file_of(const world *of, const place &at, int rank)
{
    return of->files + "." + std::to_string(std::get<0>(at)) + "." +
           std::to_string(std::get<1>(at)) + "." + std::to_string(std::get<2>(at)) + "." +
           std::to_string(rank);
}

size_t brought_bytes(const world *of, const call &own)
{
    const size_t parts = own.what == REDUCE_SCATTER ? (size_t)of->size
                         : own.what == RECEIVE      ? 0
                                                    : 1;

    return parts * own.count * bytes_of(own.type);
}

void file_bring(const world *of, const place &at, const call &own, int rank)
{
    file_write(file_of(of, at, rank), &own, sizeof own, own.in, brought_bytes(of, own));
}

/* Whether all inputs exist; then this member has its result. */
bool files_meet(const world *of, const place &at, const call &own, int rank)
{
    const bool is_message = std::get<0>(at) != everybody;
    const size_t count = is_message ? 2 : (size_t)of->size;
    std::vector<std::vector<char>> brought(count);
    std::vector<call> calls(count);
    std::vector<arrival> met(count);

    for (size_t m = 0; m < count; m++) {
        const int member = !is_message ? (int)m : m == 0 ? std::get<0>(at) : std::get<1>(at);
        if (access(file_of(of, at, member).c_str(), R_OK) != 0)
            return false;
    }
    for (size_t m = 0; m < count; m++) {
        const int member = !is_message ? (int)m : m == 0 ? std::get<0>(at) : std::get<1>(at);
        FILE *file = fopen(file_of(of, at, member).c_str(), "rb");
        if (file == nullptr || fread(&calls[m], sizeof calls[m], 1, file) != 1)
            emulated_broken("NCCL: what member %d brought cannot be read", member);
        brought[m].resize(brought_bytes(of, calls[m]));
        if (file != nullptr &&
            fread(brought[m].data(), 1, brought[m].size(), file) != brought[m].size())
            emulated_broken("NCCL: what member %d brought is cut short", member);
        if (file != nullptr)
            fclose(file);
        calls[m].in = brought[m].data();
        calls[m].out = member == rank ? own.out : nullptr;
        met[m].of = &calls[m];
        if (!is_alike(calls[0], calls[m]))
            emulated_broken("NCCL \"%s\": %s of %zu meets %s of %zu", of->name.c_str(),
                            names[calls[0].what], calls[0].count, names[calls[m].what],
                            calls[m].count);
    }
    if (!is_message)
        collective_run(met);
    else if (own.what == RECEIVE)
        memcpy(own.out, brought[0].data(), brought[0].size());
    return true;
}

/* Whether all members are there. */
bool has_joined(const world *of)
{
    if (files_folder() == nullptr)
        return of->joined == of->size;
    for (int m = 0; m < of->size; m++)
        if (access((of->files + ".joined." + std::to_string(m)).c_str(), R_OK) != 0)
            return false;
    return true;
}

/* ---- Connections ---- */

/* By size, like NCCL's tuner. */
std::string connection_of(const ncclComm_t comm, const call &of)
{
    const bool is_message = of.what == SEND || of.what == RECEIVE;

    if (is_message && of.what == SEND)
        return std::to_string(comm->rank) + " to " + std::to_string(of.other);
    if (is_message)
        return std::to_string(of.other) + " to " + std::to_string(comm->rank);
    return of.what == ALL_REDUCE && of.count * bytes_of(of.type) <= 1024 ? "tree" : "ring";
}

bool is_connected(const world *of, const std::string &name)
{
    const auto found = of->connections.find(name);
    const size_t needed = name == "tree" || name == "ring" ? (size_t)of->size : 2;

    return found != of->connections.end() && found->second.size() >= needed;
}

/* First uses in these calls that the other members have not reached; empty: none. */
std::string unconnected(ncclComm_t comm, const std::vector<call> &calls)
{
    world *of = comm->of.get();
    std::string found;

    for (const call &c : calls) {
        const std::string name = connection_of(comm, c);
        const bool is_first = of->connections[name].insert(comm->rank).second;
        if (is_first && emulated_device_waits())
            emulated_broken("NCCL \"%s\" connects %s for its first %s while a kernel waits for its "
                            "peers",
                            of->name.c_str(), name.c_str(), names[c.what]);
        if (is_first)
            emulated_changed();
        if (!is_connected(of, name))
            found = name;
    }
    return found;
}

/* ---- Launches ---- */

/* Whether one follows the other on some device, directly or through others. */
bool is_behind(const std::pair<int, size_t> &launched, const std::pair<int, size_t> &sought)
{
    std::vector<std::pair<int, size_t>> left{launched};
    std::set<std::pair<int, size_t>> seen;

    while (!left.empty()) {
        const auto at = left.back();
        left.pop_back();
        if (at == sought)
            return true;
        if (seen.insert(at).second)
            for (const auto &next : all().followers[at])
                left.push_back(next);
    }
    return false;
}

/* NCCL requires one order of all communicators on all devices. */
void order_check(ncclComm_t comm)
{
    const world *of = comm->of.get();
    const std::pair<int, size_t> own{of->serial, comm->launched++};
    const int device = of->devices[(size_t)comm->rank];
    const auto before = all().latest.find(device);

    if (before != all().latest.end()) {
        if (is_behind(own, before->second))
            emulated_broken("NCCL \"%s\": member %d launches communicator %d behind %d, and other "
                            "devices this one before that",
                            of->name.c_str(), comm->rank, of->serial, before->second.first);
        all().followers[before->second].push_back(own);
    }
    all().latest[device] = own;
}

/* Launches on all members, with the connections that the calls require. */
void launch(std::unique_lock<std::mutex> &lock, ncclComm_t comm, cudaStream_t stream,
            const std::vector<call> &calls)
{
    const unsigned long graph = emulated_graph_launch::current();
    if (!comm->kernels.empty() && (graph == 0 || graph != comm->graph))
        emulated_broken("NCCL \"%s\": member %d launches a kernel behind another that is not over",
                        comm->of->name.c_str(), comm->rank);
    comm->graph = graph;
    if (comm->of->files.empty())
        order_check(comm);
    auto kernel = std::make_shared<nccl_kernel>();
    kernel->comm = comm;
    kernel->of = comm->of;
    kernel->rank = comm->rank;
    kernel->calls = calls;
    kernel->left = calls.size();
    for (const call &c : calls) {
        const bool is_message = c.what == SEND || c.what == RECEIVE;
        const int from = !is_message ? everybody : c.what == SEND ? comm->rank : c.other;
        const int to = !is_message ? everybody : c.what == SEND ? c.other : comm->rank;
        kernel->places.emplace_back(from, to, comm->counts[{from, to}]++);
    }
    comm->kernels.insert(kernel.get());
    lock.unlock();
    emulated_queue_kernel(emulated_queue_of(stream), kernel);
    lock.lock();
}

/* Launching a graph after its communicator was destroyed is undefined. */
void launch_or_record(std::unique_lock<std::mutex> &lock, ncclComm_t comm, cudaStream_t stream,
                      const std::vector<call> &calls)
{
    const auto again = [comm, stream, calls] {
        std::unique_lock<std::mutex> own = emulated_lock();
        launch(own, comm, stream, calls);
    };

    lock.unlock();
    const bool is_recorded = emulated_capture(stream, {again, comm->graphs});
    lock.lock();
    if (!is_recorded)
        launch(lock, comm, stream, calls);
}

ncclResult_t ask(ncclComm_t comm, cudaStream_t stream, const std::vector<call> &calls)
{
    std::unique_lock<std::mutex> lock = emulated_lock();
    std::string missing;

    if (comm->waits != nullptr) {
        emulated_broken("NCCL \"%s\": a call while another is in progress", comm->of->name.c_str());
        return ncclInvalidUsage;
    }
    if (comm->of->files.empty())
        missing = unconnected(comm, calls);
    if (missing.empty()) {
        launch_or_record(lock, comm, stream, calls);
        return ncclSuccess;
    }
    comm->stream = stream;
    comm->calls = calls;
    comm->waits = emulated_wait_begin("NCCL's first " + missing + " of \"" + comm->of->name + "\"");
    return ncclInProgress;
}

struct grouped {
    ncclComm_t comm;
    cudaStream_t stream;
    std::vector<call> calls;
};
thread_local int group_depth;
thread_local std::vector<grouped> group;

ncclResult_t take(ncclComm_t comm, cudaStream_t stream, const call &asked)
{
    if (comm == nullptr || stream == nullptr || asked.count == 0 ||
        (asked.what >= REDUCE && (asked.other < 0 || asked.other >= comm->of->size))) {
        emulated_broken("NCCL: a call with an argument that is none");
        return ncclInvalidArgument;
    }
    if (group_depth == 0)
        return ask(comm, stream, {asked});
    for (grouped &g : group)
        if (g.comm == comm && g.stream == stream) {
            g.calls.push_back(asked);
            return ncclSuccess;
        }
    group.push_back({comm, stream, {asked}});
    return ncclSuccess;
}

/* NCCL waits for the graphs on every destroy or abort of a communicator (src/init.cc,
 * commDestroySync). */
void world_leave(std::unique_lock<std::mutex> &lock, ncclComm_t comm)
{
    if (comm->graphs.use_count() > 1)
        emulated_broken("NCCL \"%s\": member %d is given up while %ld kernels of it are in graphs",
                        comm->of->name.c_str(), comm->rank, comm->graphs.use_count() - 1);
    emulated_wait(lock, "the end of a communicator that graphs have",
                  [&] { return comm->graphs.use_count() == 1; });
    if (comm->waits != nullptr)
        emulated_wait_end(comm->waits);
    comm->of->members[(size_t)comm->rank] = nullptr;
    all().open--;
    delete comm;
}
} // namespace

/* ---- NCCL's functions ---- */

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::unique_lock<std::mutex> lock = emulated_lock();

    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%d-%lu", (int)getpid(), ++all().identifiers);
    return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclSystemError ? "unhandled system error" : "emulated failure";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const char *connects = getenv("NCCL_RUNTIME_CONNECT");
    std::unique_lock<std::mutex> lock = emulated_lock();
    if (all().open == 0) { /* some of its members may have ended in the middle */
        all().latest.clear();
        all().followers.clear();
    }
    std::shared_ptr<world> &of = all().worlds[id.internal];

    if (config->blocking != 0)
        emulated_broken("NCCL: a communicator that blocks who makes it");
    if (of == nullptr) {
        of = std::make_shared<world>();
        of->size = size;
        of->serial = all().made++;
        of->name = config->commName != nullptr ? config->commName : "";
        of->members.resize((size_t)size);
        of->devices.assign((size_t)size, -1);
    }
    const std::shared_ptr<world> own = of;
    if (own->size != size || own->devices[(size_t)rank] >= 0)
        emulated_broken("NCCL: member %d of %d joins twice, or another communicator", rank, size);
    for (int device : own->devices)
        if (device == emulated_device_current())
            emulated_broken("NCCL: two members on device %d", device);
    own->devices[(size_t)rank] = emulated_device_current();
    *out = new ncclComm{own, rank};
    own->members[(size_t)rank] = *out;
    all().open++;
    if (++own->joined == size || files_folder() != nullptr)
        all().worlds.erase(id.internal);
    if (files_folder() != nullptr) {
        own->files = std::string(files_folder()) + "/" + id.internal;
        file_write(own->files + ".joined." + std::to_string(rank), "", 0, "", 0);
    } else if (connects != nullptr && strcmp(connects, "0") == 0) {
        own->connections["tree"].insert(rank);
        own->connections["ring"].insert(rank);
    }
    emulated_changed();
    if (has_joined(own.get()))
        return ncclSuccess;
    (*out)->waits = emulated_wait_begin("ncclCommInitRankConfig");
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    std::unique_lock<std::mutex> lock = emulated_lock();
    bool is_over = has_joined(comm->of.get());

    for (const call &c : comm->calls)
        is_over = is_over && is_connected(comm->of.get(), connection_of(comm, c));
    *out = is_over ? ncclSuccess : ncclInProgress;
    if (!is_over || comm->waits == nullptr)
        return ncclSuccess;
    emulated_wait_end(comm->waits);
    comm->waits = nullptr;
    if (!comm->calls.empty())
        launch_or_record(lock, comm, comm->stream, comm->calls);
    comm->calls.clear();
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    std::unique_lock<std::mutex> lock = emulated_lock();

    if (!comm->kernels.empty() || comm->waits != nullptr)
        emulated_broken("NCCL \"%s\": member %d is destroyed under a kernel or in progress",
                        comm->of->name.c_str(), comm->rank);
    emulated_wait(lock, "ncclCommDestroy", [&] { return comm->kernels.empty(); });
    world_leave(lock, comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    std::unique_lock<std::mutex> lock = emulated_lock();

    for (nccl_kernel *kernel : comm->kernels) {
        kernel->is_aborted = true;
        kernel->comm = nullptr;
        for (const place &at : kernel->places) {
            const auto met = comm->of->meetings.find(at);
            if (met == comm->of->meetings.end())
                continue;
            for (arrival &a : met->second)
                if (a.kernel == kernel)
                    a = arrival();
        }
    }
    emulated_changed();
    world_leave(lock, comm);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    std::vector<grouped> taken;
    ncclResult_t first = ncclSuccess;

    if (group_depth == 0) {
        emulated_broken("NCCL: a group ends that has not begun");
        return ncclInvalidUsage;
    }
    if (--group_depth > 0)
        return ncclSuccess;
    taken.swap(group);
    for (const grouped &g : taken) {
        const ncclResult_t code = ask(g.comm, g.stream, g.calls);
        first = first == ncclSuccess ? code : first;
    }
    return first;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return take(comm, stream, {ALL_REDUCE, in, out, count, type, op, 0});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return take(comm, stream, {ALL_GATHER, in, out, count, type, ncclSum, 0});
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return take(comm, stream, {REDUCE_SCATTER, in, out, count, type, op, 0});
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return take(comm, stream, {REDUCE, in, out, count, type, op, root});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return take(comm, stream, {BROADCAST, in, out, count, type, ncclSum, root});
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return take(comm, stream, {SEND, in, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return take(comm, stream, {RECEIVE, nullptr, out, count, type, ncclSum, peer});
}
}
