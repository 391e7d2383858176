// quire chat
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/line_reader.h"
#include "cli/request_fields.h"
#include "cli/signals.h"
#include "cli/target.h"
#include "engine/text/utf8.h"

namespace quire::cli {
namespace {

// A server that does not answer in this time keeps the session until its time is over.
constexpr absl::Duration kEndSessionWait = absl::Milliseconds(300);

constexpr const char* kHelp =
    "/reset  forget the conversation\n"
    "/help   this text\n"
    "/exit   leave (so do end of input and Ctrl-C at the prompt)\n"
    "Ctrl-C  stops an answer that is being written\n";

struct ChatFlags {
  TargetFlags target;
  v1::GenerateRequest request;
  std::string system;
  bool session = false;
};

// Nobody else's, so that conversations do not take each other's place.
std::string NewSessionId() {
  std::random_device random;
  return fmt::format("chat-{:08x}{:08x}", random(), random());
}

// What Ctrl-C means: stop the answer that is being written, else leave.
class Interrupts {
 public:
  explicit Interrupts(LineReader* reader) : reader_(reader) {}

  void OnSignal(int signal) {
    absl::MutexLock lock(&mutex_);
    if (!talking_) ExitNow(128 + signal);
    if (signal == SIGTERM || call_ == nullptr || stopping_) reader_->Interrupt();
    if (call_ != nullptr) call_->Cancel();
    stopping_ = true;
  }
  // Until then nothing would answer a signal but the end of the process.
  void StartTalking() {
    absl::MutexLock lock(&mutex_);
    talking_ = true;
  }
  void Begin(std::shared_ptr<server::Call> call) {
    absl::MutexLock lock(&mutex_);
    call_ = std::move(call);
    stopping_ = false;
  }
  void End() {
    absl::MutexLock lock(&mutex_);
    call_.reset();
  }

 private:
  LineReader* const reader_;
  absl::Mutex mutex_;
  std::shared_ptr<server::Call> call_ ABSL_GUARDED_BY(mutex_);
  bool talking_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;  // The live call was told to stop.
};

class Conversation {
 public:
  Conversation(const ChatFlags& flags, Target& target, Interrupts& interrupts,
               const Console& console)
      : flags_(flags), target_(target), interrupts_(interrupts), console_(console) {
    Reset();
  }
  ~Conversation() { EndSession(); }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  void Reset() {
    EndSession();
    request_ = flags_.request;
    request_.mutable_chat();
    if (flags_.session) request_.set_session_id(NewSessionId());
    if (!flags_.system.empty()) AddMessage("system", flags_.system);
  }

  // Sends the conversation with `text` at its end and streams the answer. A failed turn leaves no
  // trace in the conversation; a stopped one stays as far as it came.
  absl::Status Say(const std::string& text) {
    if (engine::text::FindInvalidUtf8(text)) return InvalidArgument("that is not valid UTF-8");
    AddMessage("user", text);
    v1::GenerateUnaryResponse answer;
    const server::CallOutcome outcome = Ask(&answer);
    console_.out << std::endl;
    const bool stopped = absl::IsCancelled(outcome.status);
    if (!outcome.status.ok() && !stopped) {
      request_.mutable_chat()->mutable_messages()->RemoveLast();
      if (!absl::IsInvalidArgument(outcome.status) || !HasAnswers()) return outcome.status;
      return InvalidArgument("{} (/reset starts a new conversation)",
                             AsStd(outcome.status.message()));
    }
    AddMessage("assistant", answer.completions_size() > 0 ? answer.completions(0).text() : "");
    if (stopped) console_.err << "[stopped]" << std::endl;
    return absl::OkStatus();
  }

 private:
  // Nobody else knows the session, and nobody will go on with it.
  void EndSession() {
    if (!flags_.session || !HasAnswers()) return;
    target_.EndSession(request_.session_id(), request_.cache_salt(), kEndSessionWait);
  }
  bool HasAnswers() const {
    const auto& messages = request_.chat().messages();
    return !messages.empty() && messages.rbegin()->role() == "assistant";
  }
  void AddMessage(const std::string& role, const std::string& content) {
    auto* message = request_.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(content);
  }

  server::CallOutcome Ask(v1::GenerateUnaryResponse* answer) {
    server::CallOutcome outcome;
    absl::Notification done;
    interrupts_.Begin(target_.Generate(
        request_, {.retry_for = absl::Minutes(1)},
        [&](const v1::GenerateResponse& response) {
          Accumulate(response, answer);
          if (response.has_delta()) console_.out << response.delta().text() << std::flush;
        },
        [&](const server::CallOutcome& ended) {
          outcome = ended;
          done.Notify();
        }));
    done.WaitForNotification();
    interrupts_.End();
    return outcome;
  }

  const ChatFlags& flags_;
  Target& target_;
  Interrupts& interrupts_;
  const Console& console_;
  v1::GenerateRequest request_;
};

// Returns whether every turn of the last conversation was answered.
bool Talk(LineReader& reader, Conversation& conversation, const CommandContext& context) {
  const Console& console = context.console;
  const bool shows_prompt = console.err_is_terminal;
  bool good = true;
  if (shows_prompt) console.err << "Type a message; /help for more." << std::endl;
  while (true) {
    if (shows_prompt) console.err << "> " << std::flush;
    const std::optional<std::string> typed = reader.ReadLine();
    if (!typed) break;
    const std::string line = WithoutEscapes(*typed);
    if (line == "/exit") break;
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (line == "/reset") {
      conversation.Reset();
      good = true;
    } else if (line == "/help") {
      console.err << kHelp;
    } else if (line.starts_with("/")) {
      console.err << "unknown command " << line << "\n" << kHelp;
    } else if (const absl::Status status = conversation.Say(line); !status.ok()) {
      console.Fail(status);
      good = false;
    }
  }
  if (shows_prompt) console.err << std::endl;
  return good;
}

absl::Status CheckFlags(const ChatFlags& flags, const Environment& environment) {
  if (engine::text::FindInvalidUtf8(flags.system)) {
    return InvalidArgument("--system is not valid UTF-8");
  }
  v1::GenerateRequest request = flags.request;
  request.mutable_chat();
  const absl::Status status = CheckRequest(request);
  if (!status.ok()) return InvalidArgument("{}", AsFlag(AsStd(status.message())));
  return CheckTargetFlags(flags.target, environment);
}

ExitCode Chat(const ChatFlags& flags, const CommandContext& context) {
  const absl::Status wrong_flags = CheckFlags(flags, context.environment);
  if (!wrong_flags.ok()) return context.console.Fail(wrong_flags, ExitCode::kUsage);
  LineReader reader(STDIN_FILENO);
  Interrupts interrupts(&reader);
  const SignalListener signals([&](int signal, int) { interrupts.OnSignal(signal); });
  const auto target = OpenTarget(flags.target, context);
  if (!target.ok()) return context.console.Fail(target.status());
  interrupts.StartTalking();
  Conversation conversation(flags, **target, interrupts, context.console);
  return Talk(reader, conversation, context) ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void AddChatCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<ChatFlags>();
  auto* chat = app.add_subcommand("chat", "Talk with a model");
  chat->add_option("--system", flags->system, "what the model is told first")->type_name("TEXT");
  auto* session = AddSwitch(*chat, "--session", &flags->session,
                            "the server keeps the conversation's blocks between its turns");
  // A conversation has one answer per turn, shows its text and sends all messages.
  AddRequestFlags(*chat, &flags->request,
                  {"n", "logprobs", "prompt_logprobs", "detokenize", "continue_session",
                   "parse_special", "add_special"});
  session->excludes(chat->get_option("--session-id"));
  AddTargetFlags(*chat, &flags->target);
  chat->footer(std::string("In the conversation:\n") + kHelp +
               "\nExamples:\n"
               "  quire chat --model smollm2-135m\n"
               "  quire chat --server 127.0.0.1:50051 --system \"Answer in one sentence.\"");
  chat->callback([=] { *action = [=] { return Chat(*flags, context); }; });
}

}  // namespace quire::cli
