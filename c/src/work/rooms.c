/* rooms.c: see rooms.h. */
#include "work/rooms.h"

#include <string.h>

#include "flow/model_set.h"
#include "models/process.h"
#include "work/jobs.h"

/* How many workers may wait in one model's process: all but one, if there is another model to be
 * served meanwhile, and another worker. */
static uint32_t places(const struct lm_worker *worker, const struct lm_request *request) {
    uint32_t workers = worker->line->workers;
    return workers > 1 && request->models->count > 1 ? workers - 1 : workers;
}

static bool is_in(const struct lm_rooms *rooms, const struct lm_process_room *room) {
    for (uint32_t r = 0; r < rooms->count; r++) {
        if (rooms->in[r] == room) return true;
    }
    return false;
}

/* A worker waits in one process at a time: jobs of another one are for somebody else, if the queue
 * takes them. */
static bool go_back(struct lm_worker *worker, const struct lm_rooms *rooms, uint32_t job) {
    struct lm_queue *queue = &worker->line->queue;
    return rooms->count > 0 && lm_jobs_may_go_back(queue) && lm_queue_push(queue, job);
}

uint32_t lm_rooms_enter(struct lm_worker *worker, struct lm_rooms *rooms, uint32_t *jobs,
                        uint32_t count) {
    uint32_t apart[LM_BATCH_MAX], apart_count = 0, kept = 0;
    rooms->count = 0;
    for (uint32_t j = 0; j < count; j++) {
        const struct lm_request *request = lm_worker_request(worker, jobs[j]);
        struct lm_process *process = request->model->process;
        uint32_t job = jobs[j];
        if (!process) {
            jobs[kept++] = job;
            continue;
        }
        struct lm_process_room *room = &process->rooms[worker->node->index];
        if (!is_in(rooms, room)) {
            if (go_back(worker, rooms, job)) continue;
            if (!lm_process_room_enter(room, places(worker, request), &job)) continue;
            rooms->in[rooms->count++] = room;
        }
        apart[apart_count++] = job;
    }
    memcpy(jobs + kept, apart, apart_count * sizeof *jobs);
    rooms->first = kept;
    return kept + apart_count;
}

uint32_t lm_rooms_leave(struct lm_worker *worker, struct lm_rooms *rooms, uint32_t *jobs) {
    struct lm_queue *queue = &worker->line->queue;
    uint32_t count = 0, job;
    for (uint32_t r = 0; r < rooms->count; r++) {
        if (!lm_process_room_leave(rooms->in[r], &job)) continue;
        if (lm_jobs_may_go_back(queue) && lm_queue_push(queue, job)) {
            lm_jobs_wake_another(worker->node, worker->line);
        } else {
            jobs[count++] = job;
        }
    }
    return count;
}
