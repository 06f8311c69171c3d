#include "endings.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>

namespace lanewise {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM};
constexpr int kCount = sizeof(kSignals) / sizeof(kSignals[0]);
// A program that keeps the GIL for longer ends without its last file.
constexpr time_t kGraceSeconds = 5;

struct Ending {
  timer_t timer;
  bool taken;
};

Ending endings[kCount];
sem_t wake;
std::atomic<int> came{0};
pid_t owner = 0;

// Only what POSIX allows inside of a handler. SA_RESETHAND: from here on the default holds again, for the timer's
// signal, for a second one from outside, and for the one that is sent after the file.
void ended(int number) {
  const int kept = errno;
  const itimerspec grace = {{0, 0}, {kGraceSeconds, 0}};
  bool told = false;
  if (getpid() == owner) {
    for (int at = 0; at < kCount; ++at) {
      if (kSignals[at] == number && timer_settime(endings[at].timer, 0, &grace, nullptr) == 0) {
        came.store(number);
        told = sem_post(&wake) == 0;
      }
    }
  }
  if (!told) kill(getpid(), number);
  errno = kept;
}

bool handled_by_default(int number) {
  struct sigaction now;
  return sigaction(number, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL;
}

bool handled_by_us(int number) {
  struct sigaction now;
  return sigaction(number, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == ended;
}

}  // namespace

void endings_on() {
  static const bool made = sem_init(&wake, 0, 0) == 0;
  if (!made) return;
  owner = getpid();
  came.store(0);
  while (sem_trywait(&wake) == 0) {
  }
  for (int at = 0; at < kCount; ++at) {
    Ending& one = endings[at];
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = kSignals[at];
    one.taken = handled_by_default(kSignals[at]) && timer_create(CLOCK_MONOTONIC, &event, &one.timer) == 0;
    if (!one.taken) continue;
    struct sigaction ours = {};
    ours.sa_handler = ended;
    ours.sa_flags = SA_RESETHAND | SA_RESTART | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(kSignals[at], &ours, nullptr);
  }
}

void endings_off() {
  if (getpid() != owner) return;
  for (int at = 0; at < kCount; ++at) {
    if (!endings[at].taken) continue;
    endings[at].taken = false;
    if (handled_by_us(kSignals[at])) signal(kSignals[at], SIG_DFL);
    timer_delete(endings[at].timer);
  }
  if (const int number = came.exchange(0)) kill(getpid(), number);
}

int wait_ending(double seconds) {
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  const double whole = std::floor(std::max(seconds, 0.0));
  until.tv_sec += static_cast<time_t>(whole);
  until.tv_nsec += static_cast<long>((std::max(seconds, 0.0) - whole) * 1e9);
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    ++until.tv_sec;
  }
  while (sem_timedwait(&wake, &until) != 0 && errno == EINTR) {
  }
  return came.load();
}

void wake_ending() { sem_post(&wake); }

}  // namespace lanewise
