package main

// claimProtocol are changes of what makes and releases claims, binds pods, evicts pods for others, and shows all this in Views: each leaves out
// or inverts one condition or step.
var claimProtocol = []declaredMutant{
	// A claim in a ledger.
	{"internal/ledger/apply.go", "p.Token == o.token && (o.shared || !p.Shared)", "(o.shared || !p.Shared)", "internal/ledger TestWritingHistories"},
	{"internal/ledger/apply.go", "p.Token == o.token && (o.shared || !p.Shared)", "p.Token == o.token", "internal/ledger TestClaimThatTwoAttemptsRelyOnIsShared"},
	{"internal/ledger/apply.go", "if held.Token == o.pod.Token {", "if false {", "internal/ledger TestClaimWithLostResponseIsNotShared"},
	{"internal/ledger/apply.go", "if _, err := o.choose(l, held.At); err != nil {", "if _, err := o.choose(l, held.At); false {", "internal/ledger TestClaimThatCannotBeUsed"},
	{"internal/ledger/apply.go", "held.Token, held.Node, held.Shared = o.pod.Token, o.pod.Node, true", "held.Node, held.Shared = o.pod.Node, true", "internal/ledger TestWritingHistories"},
	{"internal/ledger/apply.go", "held.Token, held.Node, held.Shared = o.pod.Token, o.pod.Node, true", "held.Token, held.Node = o.pod.Token, o.pod.Node", "internal/ledger TestClaimThatTwoAttemptsRelyOnIsShared"},
	{"internal/ledger/apply.go", "held.Token, held.Node, held.Shared = o.pod.Token, o.pod.Node, true", "held.Token, held.Shared = o.pod.Token, true", "internal/ledger TestClaimOfAPoolMovesToAnotherNode"},
	{"internal/ledger/apply.go", "if err := addClaim(&base, held, chosen); err != nil {", "if err := addClaim(&base, held, chosen); err != nil {\n\t\t*l = base", "internal/ledger TestLedgerIsLimited"},
	{"internal/ledger/apply.go", " || u.Used()+a.Amount > u.Capacity:", ":", "internal/ledger TestClaimOfMoreThanIsLeft"},
	{"internal/ledger/apply.go", "u.Used()+a.Amount > u.Capacity", "u.Used()+a.Amount >= u.Capacity", "internal/ledger TestManyClaimsAtOnce"},
	{"internal/ledger/apply.go", "a.Amount > math.MaxInt64-u.Used() || u.Used()+a.Amount", "math.MaxInt64 < 0 || u.Used()+a.Amount", "internal/ledger TestClaimOfMoreThanIsLeft"},
	{"internal/ledger/apply.go", "case u.Amount(held.UID) != 0:", "case false:", "internal/ledger TestClaimErrors"},
	{"internal/ledger/apply.go", "case a.Amount < 1:", "case a.Amount < 0:", "internal/ledger TestClaimErrors"},
	{"internal/ledger/apply.go", "len(u.Claims) >= snapshot.MaxUnitClaims", "len(u.Claims) > snapshot.MaxUnitClaims", "internal/ledger TestLedgerIsLimited"},
	{"internal/ledger/apply.go", "len(l.Pods) >= snapshot.MaxLedgerPods", "len(l.Pods) > snapshot.MaxLedgerPods", "internal/ledger TestLedgerIsLimited"},
	{"internal/ledger/apply.go", "len(l.Units) > snapshot.MaxLedgerUnits", "len(l.Units) >= snapshot.MaxLedgerUnits", "internal/ledger TestLedgerIsLimited"},
	{"internal/ledger/apply.go", "if len(old.Claims) > 0 && !slices", "if len(old.Claims) < 0 && !slices", "internal/ledger TestUnitThatIsGoneKeepsItsClaims"},
	{"internal/ledger/apply.go", ` && (l.Node != "" || earliest.Sub(at) <= maxAhead) {`, " {", "internal/ledger TestTimesOfClaims"},
	{"internal/ledger/apply.go", "l.LastAt.Add(minStep), created", "l.LastAt, created", "internal/ledger TestTimesOfClaims"},
	{"internal/ledger/apply.go", "if chosen.NotBefore.After(at) {", "if false {", "internal/ledger TestClaimsOfAClockThatIsBehind"},

	// The examination of a claim that may be no longer needed.
	{"internal/ledger/examine.go", "n == finishedWith && (pod != nil || e.Age >= cacheDelay)", "n == finishedWith", "internal/ledger TestExaminationHistories"},
	{"internal/ledger/examine.go", "case asked == ReadPod && n == finishedWith:", "case asked == ReadPod && n != needed:", "internal/ledger TestExaminationHistories"},
	{"internal/ledger/examine.go", "case asked == TouchPod && n != needed:", "case asked == TouchPod:", "internal/ledger TestExaminationHistories"},
	{"internal/ledger/examine.go", "expired := n == unbound && e.Age >= e.Limit", "expired := n == unbound", "internal/ledger TestExaminationHistories"},
	{"internal/ledger/examine.go", `case l.Node != "" && pod.Spec.NodeName != l.Node:`, "case false:", "internal/ledger TestExaminationHistories"},
	{"internal/ledger/examine.go", `case l.Node != "" && pod.Spec.NodeName != l.Node:`, "case pod.Spec.NodeName != l.Node:", "test/search TestEveryInterleaving/two_seats"},
	{"internal/ledger/examine.go", "case pod == nil, pod.UID != p.UID:", "case pod == nil:", "internal/ledger TestExaminationHistories"},
	{"internal/ledger/examine.go", "case snapshot.Ended(pod):", "case false:", "internal/ledger TestExaminationHistories"},
	{"internal/ledger/examine.go", "return ReleaseOf(*e.Claim, true)", "return ReleaseOf(*e.Claim, false)", "test/search TestEveryInterleaving/one_pod,_two_calls,_one_crash"},
	{"internal/ledger/examine.go", "\t\te.Request = asked\n", "", "internal/ledger TestReclaimsThatAreRefused"},

	// The write of a ledger.
	{"internal/ledger/write.go", "r.Err == nil && w.late.ResourceVersion != r.Object.ResourceVersion {", "r.Err == nil {", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "if unchanged && w.read && w.late != nil {", "if unchanged && w.read && w.late != nil && false {", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case (rejected || unchanged) && !w.read:", "case rejected && !w.read:", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case (rejected || unchanged) && !w.read:", "case unchanged && !w.read:", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case rejected && w.Request.Kind != ExamineClaims:", "case false:", "internal/ledger TestClaimsOfPodsThatAreGoneMakeRoom"},
	{"internal/ledger/write.go", "Limit: math.MaxInt64}", "Limit: min(0, math.MaxInt64)}", "internal/ledger TestClaimOfAPodThatWaitsStays"},
	{"internal/ledger/write.go", "case r.Ended, !outdated(w.Request.Object, r.Err):", "case r.Ended:", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "w.Object, w.read = newer, false", "w.Object, w.read = newer, true", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "\t\tw.late = w.Request.Object\n", "", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case r.Ended, final, invalid && w.refusals == maxRejections:", "case r.Ended, final:", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case r.Ended, final, invalid &&", "case r.Ended, invalid &&", "internal/ledger TestClaimsThatAreDenied"},
	{"internal/ledger/write.go", "case rejected && unknown != nil:", "case unknown != nil && false:", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "e.Err != nil && !apierrors.IsForbidden(e.Err) {", "e.Err != nil {", "internal/ledger TestClaimWithoutPermissionToReadPods"},
	{"internal/ledger/write.go", "written.UID != cached.UID, written.Generation < cached.Generation:", "written.UID != cached.UID:", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case written == nil, written.UID != cached.UID, ", "case written == nil, ", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case r.Object.Spec.Key() != w.key:", "case false:", "internal/ledger TestWritingHistories"},
	{"internal/ledger/write.go", "case invalid && w.refusals > 0 && len(w.operations) > 1:", "case false:", "internal/ledger TestOneClaimDoesNotSpoilTheOthers"},

	// The queue of a ledger, and those who wait.
	{"internal/ledger/queue.go", "if c := s.Claim; c != nil {", "if c := s.Claim; c != nil && false {", "internal/ledger TestClaimGivenUpLeavesNothing"},
	{"internal/ledger/queue.go", "\t\tq.pending = slices.Delete(q.pending, i, i+1)\n", "", "internal/ledger TestClaimGivenUpLeavesNothing"},
	{"internal/ledger/queue.go", "Object: q.written, late: q.late}", "Object: q.written}", "test/search TestEveryInterleaving/two_pods,_one_fault"},
	{"internal/ledger/queue.go", "q.written, q.late, q.swept = w.Object, w.late, false", "q.written, q.swept = w.Object, false", "test/search TestEveryInterleaving/two_pods,_one_fault"},
	{"internal/ledger/queue.go", "return swept && !q.writing", "return (swept || true) && !q.writing", "internal/ledger TestDeletedLedgersAreForgotten"},
	{"internal/ledger/queue.go", "return swept && !q.writing", "return swept", "internal/ledger TestQueueThatIsWrittenStays"},
	{"internal/ledger/keeper.go", "if err := result.Failure; err != nil && !errors", "if err := result.Failure; err != nil && false && !errors", "internal/ledger TestClaimWhoseWriteFailedIsReleased"},

	// Sweeps.
	{"internal/ledger/sweep.go", "age(claimID{ledger: o.Name, uid: o.UID}) >= k.options.ReclaimAfter", "age(claimID{ledger: o.Name, uid: o.UID}) >= 0", "internal/ledger TestLedgersOfNodesThatAreGone"},
	{"internal/ledger/sweep.go", " && len(o.Spec.Pods) == 0 && ", " && ", "internal/ledger TestLedgersOfNodesThatAreGone"},
	{"internal/ledger/sweep.go", " && k.options.Cache.View().Node(o.Spec.Node) == nil &&", " &&", "internal/ledger TestEmptyLedgersStay"},
	{"internal/ledger/sweep.go", `if o.Spec.Node != "" && len`, "if len", "internal/ledger TestEmptyLedgersStay"},
	{"internal/ledger/sweep.go", "\ts.seen = seen\n", "", "internal/ledger TestLedgerAgainstWorld"},

	// The protocol of a bind call.
	{"internal/binder/protocol.go", "\t\tb.ResourceVersion = p.pod.ResourceVersion\n", "", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "case errors.Is(r.Err, ErrOutcomeUnknown) && len(p.held.Held) > 0:", "case errors.Is(r.Err, ErrOutcomeUnknown) && false:", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "case bound && unusable != nil:", "case false:", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "case r.Err != nil:\n\t\treturn p.claimsStay(", "case r.Err != nil && false:\n\t\treturn p.claimsStay(", "internal/binder TestBind"},
	{"internal/binder/protocol.go", "p.cause, p.undo = cause, p.held.Held", "p.cause = cause", "internal/binder TestBind"},
	{"internal/binder/protocol.go", "case p.unusable() != nil:\n\t\treturn p.do", "case false:\n\t\treturn p.do", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "case p.unusable() != nil:\n\t\treturn p.try", "case false:\n\t\treturn p.try", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "case errors.Is(p.cause, ErrPodChanged):", "case false:", "internal/binder TestBind"},
	{"internal/binder/protocol.go", "case p.tries == maxTries:", "case p.tries == maxTries+1:", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "return p.undoNext(Revoke)", "return p.undoNext(Release)", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "\t\tif here {", "\t\tif here && false {", "internal/binder TestBind"},
	{"internal/binder/protocol.go", "case p.failed != nil:", "case false:", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "p.undo = []engine.HeldClaim{unusable.Claim}", "p.undo = nil", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "if after := p.held.After(); len(after) > 0 {", "if after := p.held.After(); len(after) < 0 {", "internal/binder TestBindWaitsForEarlierPods"},
	{"internal/binder/protocol.go", "p.failed = errors.Join(p.failed, r.Err)", "p.failed = r.Err", "internal/binder TestProtocol"},
	{"internal/binder/protocol.go", "return p.try(r.Pod)\n\tcase Touch:", "return p.try(p.pod)\n\tcase Touch:", "internal/binder TestBind"},
	{"internal/binder/binder.go", `if former == "" || former == node {`, `if former == "" || former != node {`, "internal/binder TestResolve"},
	{"internal/binder/binder.go", "context.WithTimeout(context.WithoutCancel(ctx), limit)", "context.WithTimeout(ctx, limit)", "internal/binder TestBindReleasesClaimsWithoutItsCaller"},
	{"internal/binder/binder.go", "case pod == nil || pod.UID != uid:", "case pod == nil:", "internal/binder TestAlreadyBound"},
	{"internal/binder/binder.go", "case pod.DeletionTimestamp != nil:", "case false:", "internal/binder TestAlreadyBound"},
	{"internal/binder/binder.go", "case pod.Spec.NodeName == node:", `case pod.Spec.NodeName != "":`, "internal/binder TestBind"},
	{"internal/binder/waiting.go", "\tcase pod.ours:", "\tcase false:", "internal/binder TestWaiting"},
	{"internal/binder/waiting.go", "\tif pod.ours {", "\tif false {", "internal/binder TestWaiting"},
	{"internal/binder/waiting.go", "w.after, w.moved = w.after[1:], now", "w.after = w.after[1:]", "internal/binder TestWaiting"},
	{"internal/binder/earlier.go", `node.Has(uid) && b.Cluster.Assumed(uid) == ""`, "node.Has(uid)", "internal/binder TestBindWaitsForEarlierPods"},

	// What is assumed about a pod.
	{"internal/cluster/assumption/assumption.go", "if a.Bound || a.Node == node || OnNode(watched) {", "if a.Node == node || OnNode(watched) {", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "if a.Bound || a.Node == node || OnNode(watched) {", "if a.Bound || OnNode(watched) {", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "if a.Bound || a.Node == node || OnNode(watched) {", "if a.Bound || a.Node == node {", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "if number <= a.overtaken || !OnNode", "if !OnNode", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "a.overtaken || !OnNode(bound) || OnNode(watched) {", "a.overtaken || !OnNode(bound) {", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "a.overtaken || !OnNode(bound) || OnNode(watched) {", "a.overtaken || bound == nil || OnNode(watched) {", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "\ta.overtaken = number\n", "", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "if a.calls > 0 || a.Bound {", "if a.Bound {", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "if a.calls > 0 || a.Bound {", "if a.calls > 0 {", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", `watched.Spec.NodeName == "" && a.Pod != nil:`, `watched.Spec.NodeName == "" && false:`, "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "Begun: a.Begun, overtaken: a.Begun}", "Begun: a.Begun, overtaken: a.overtaken}", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "case a.Pod != assumed:", "case false:", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "\t\ta.overtaken = a.Begun // a response of before may say that the pod is bound\n", "", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", `a.Pod, a.Node, a.Bound = nil, "", false`, "a.Bound = false", "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", `pod.Spec.NodeName != "" && !snapshot.Ended(pod)`, `pod.Spec.NodeName != ""`, "internal/cluster/assumption TestStates"},
	{"internal/cluster/assumption/assumption.go", "if a.Pod == nil || a.Bound {", "if a.Pod == nil {", "internal/cluster/assumption TestStates"},

	// The Binding, and what the API server responds.
	{"internal/cluster/sending.go", "\t\tcase !r.Sent:", "\t\tcase false:", "internal/cluster TestSending"},
	{"internal/cluster/sending.go", "case rejected(r.Err):", "case false:", "internal/cluster TestSending"},
	{"internal/cluster/sending.go", "failure.Unknown = true", "failure.Unknown = false", "internal/cluster TestSending"},
	{"internal/cluster/sending.go", `b.ResourceVersion != "" && pod.ResourceVersion != b.ResourceVersion`, "false", "internal/cluster TestSending"},
	{"internal/cluster/sending.go", "case s.accepted && r.Err != nil:", "case false:", "internal/cluster TestSending"},
	{"internal/cluster/sending.go", "case apierrors.IsConflict(err):", "case false:", "internal/cluster TestSending"},
	{"internal/cluster/bind.go", "case http.StatusRequestTimeout, http.StatusConflict:", "case http.StatusRequestTimeout:", "internal/cluster TestSending"},
	{"internal/cluster/bind.go", "case http.StatusRequestTimeout, http.StatusConflict:", "case http.StatusConflict:", "internal/cluster TestSending"},
	{"internal/cluster/annotate.go", "if err == nil && pod.Annotations[annotation] != now {", "if err == nil && false {", "internal/cluster TestTouchThatIsNotStored"},
	{"internal/cluster/assume.go", "if a := s.assumed[uid]; !a.Bound {", "if a := s.assumed[uid]; true {", "internal/cluster TestViewFor"},
	{"internal/cluster/assume.go", "if a.Bound && a.Since.Before(before) {", "if a.Since.Before(before) {", "internal/cluster TestPodsConvergeToTheAPIServer"},
	{"internal/cluster/assume.go", "case e == assumption.AsWatched && former.Pod != nil:", "case false:", "internal/cluster TestAssumption"},
	{"internal/cluster/ledgers.go", "\t\treturn gone\n", "\t\treturn gone && false\n", "internal/cluster TestClaimsOfPodsThatAreGone"},

	// Preemption, and the pods that are nominated.
	{"internal/engine/preempt.go", "return victim || pod.DeletionTimestamp != nil", "return victim", "internal/engine TestPreempt"},
	{"internal/engine/preempt.go", "corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(p.pod) {", "corev1helpers.PodPriority(pod) <= corev1helpers.PodPriority(p.pod) {", "internal/engine TestPreempt"},
	{"internal/engine/preempt.go", "if len(c.Victims) == 0 {", "if false {", "internal/engine TestPreempt"},
	{"internal/engine/preempt.go", "if p.fitsBeside(p.nominations, rest, true) {", "if false {", "internal/engine TestPreempt"},
	{"internal/engine/preempt.go", "return p.fitsBeside(p.nominations, left, true)", "return p.fitsBeside(p.nominations, left, false)", "internal/engine TestPreemptCountsNominatedPods"},
	{"internal/engine/preempt.go", " || slices.Contains(t.breaking, p) && !slices.Contains(t.chosen, p)", "", "internal/engine TestPreempt"},
	{"internal/engine/nominated.go", "return pod.DeletionTimestamp != nil || slices.Contains(to.Victims, pod.UID)", "return pod.DeletionTimestamp != nil || false && slices.Contains(to.Victims, pod.UID)", "internal/engine TestNominatedPodIsPlannedInPlaceOfItsVictims"},
	{"internal/engine/nominated.go", "return pod.DeletionTimestamp != nil || slices.Contains(to.Victims, pod.UID)", "return slices.Contains(to.Victims, pod.UID)", "internal/engine TestNominatedPodIsPlannedInPlaceOfItsVictims"},
	{"internal/engine/nominated.go", "corev1helpers.PodPriority(p) >= corev1helpers.PodPriority(pod) && p.UID", "corev1helpers.PodPriority(p) > corev1helpers.PodPriority(pod) && p.UID", "internal/engine TestNominatedPodsCount"},
	{"internal/engine/nominated.go", " && p.UID != pod.UID && ", " && ", "internal/engine TestNominatedPodsCount"},
	{"internal/engine/nominated.go", "certain && len(nominated.pods[i].Nodes) > 1", "false && len(nominated.pods[i].Nodes) > 1", "internal/engine TestPreemptCountsNominatedPods"},
	{"internal/engine/nominated.go", "case cost.compare(least) == 0:", "case false:", "internal/engine TestLikeliest"},
	{"internal/engine/nominated.go", "n != nil && n.node == node && slices.Equal(n.pods, pods)", "n != nil && n.node == node", "internal/engine TestNominatedPodIsPlannedInPlaceOfItsVictims"},
	{"internal/engine/preempt.go", "\t\t\tt.evictions.count(pod)\n", "", "internal/engine TestPreempt"},
	{"internal/engine/preempt.go", "limit := HighestPriority(t.chosen)", "limit := int32(math.MaxInt32)", "internal/engine TestPreempt"},
	{"internal/engine/preempt.go", "if evictions.count(pod) {", "if evictions.clone().count(pod) {", "internal/engine TestPreempt"},
	{"internal/engine/nominated.go", "pod, fits := e.plannedOn(rest.With(planned...), n.Pod)", "pod, fits := e.plannedOn(rest.With(planned[:0]...), n.Pod)", "internal/engine TestNominatedPodIsPlannedInPlaceOfItsVictims"},
	{"internal/engine/nominated.go", "pod, _ = e.plannedOn(rest.With(planned...), n.Pod)", "pod, _ = e.plannedOn(rest, n.Pod)", "internal/engine TestNominatedPodIsPlannedInPlaceOfItsVictims"},
	{"internal/engine/nominated.go", "if !fits {", "if false && !fits {", "internal/engine TestNominatedPodIsPlannedInPlaceOfItsVictims"},
	{"internal/engine/nominated.go", "if n != nominated.node {", "if false {", "internal/engine TestPreemptCountsNominatedPods"},
	{"snapshot/nominated.go", "!n.shown && len(n.expected) > 0", "len(n.expected) > 0", "snapshot TestNominee"},
	{"snapshot/nominated.go", " && &n.expected[0] == &nodes[0]", "", "snapshot TestNominee"},
	{"snapshot/nominated.go", `node != "" || pod.DeletionTimestamp != nil || Ended(pod)`, `node != "" || Ended(pod)`, "snapshot TestNominee"},
	{"snapshot/nominated.go", "nodes, shown = expected[i:i+1], true", "nodes, shown = []NominatedNode{{Name: own}}, true", "snapshot TestNominee"},
	{"snapshot/nominated.go", "b.expect(pod, former.expected, former.shown)", "b.expect(pod, nil, false)", "snapshot TestNominee"},
	{"snapshot/nominated.go", "if b.nominated[pod.UID] != nil {", "if false {", "snapshot TestNominee"},
	{"snapshot/nominated.go", "case shown:", "case false:", "snapshot TestNominee"},
	{"snapshot/builder.go", "b.Pod(pod.UID) != nil || b.nominatedElsewhere(pod.UID, node)", "b.Pod(pod.UID) != nil", "snapshot TestRoom"},
	{"snapshot/builder.go", "\tb.endNomination(uid)\n", "", "snapshot TestNominee"},
	{"internal/cluster/assume.go", "\t\texpected(&s.builder)\n", "\t\t_ = expected\n", "internal/cluster TestNominate"},
	{"internal/cluster/informers.go", `pod.Status.NominatedNodeName != "" && nominatedByOthers(pod.ManagedFields)`, "false", "internal/cluster TestNominationsOfSchedulers"},
	{"internal/extender/preempt.go", "chosenFrom(kept)", "chosenFrom(given)", "internal/extender TestPreemptingPodCountsByItsResponse"},
	{"internal/extender/preempt.go", "if slices.Contains(c.Victims, pod.UID) {", "if len(c.Victims) > 0 {", "internal/extender TestPreemptedNodeIsKept"},
	{"internal/extender/preempt.go", "pod.DeletionTimestamp != nil || slices.Contains(nominated.Victims, pod.UID)", "slices.Contains(nominated.Victims, pod.UID)", "internal/extender TestNominatedPodEvictsNoPodElsewhere"},
	{"internal/extender/filter.go", "if _, ok := nominatedTo(node, req.Pod.UID, req.View); ok {", "if true {", "internal/extender TestNominationOfOthersKeepsNoPods"},
	{"internal/extender/rejections.go", "\tdelete(r.node, uid)\n", "", "internal/extender TestNominatedPodEvictsNoPodElsewhere"},
	{"internal/ledger/examine.go", "case snapshot.Ended(pod):", "case snapshot.Ended(pod), pod.DeletionTimestamp != nil:", "test/search TestEveryInterleaving/preemption,_a_third_pod"},
	{"internal/extender/preempt.go", "gone[pod.UID] = live == nil || snapshot.Ended(live)", "gone[pod.UID] = live == nil", "internal/extender TestNominatedPodEvictsNoPodElsewhere"},
	{"internal/extender/preempt.go", "gone[pod.UID] = live == nil || snapshot.Ended(live)", "gone[pod.UID] = live == nil || true || snapshot.Ended(live)", "internal/extender TestNominatedPodEvictsNoPodElsewhere"},
	{"internal/extender/preempt.go", "if err != nil && errors.Is(asking.Err(), context.DeadlineExceeded) {", "if err != nil && errors.Is(asking.Err(), context.DeadlineExceeded) && false {", "internal/extender TestNominatedPodWaitsForTheAPIServerBriefly"},
	{"internal/extender/preempt.go", "err = h.Cluster.Nominate(ctx, pod, nodes)", "err = nil", "internal/extender TestPreemptedNodeIsKept"},
	{"internal/extender/preempt.go", "if h.Cluster.PodByUID(pod.UID) != nil {", "if true {", "internal/extender TestPreemptingPodIsNotShownYet"},
	{"internal/extender/preempt.go", "h.Engine.FitsAny(ctx, req, true)", "h.Engine.FitsAny(ctx, req, false)", "internal/extender TestNominatedPodsEvictOnePodEach"},
	{"internal/cluster/assume.go", "if pod == nil && live != nil ", "if false && live != nil ", "internal/cluster TestNominate"},
	{"internal/extender/preempt.go", "if why == \"\" {\n\t\treturn h.Engine.Preempt", "if true {\n\t\treturn h.Engine.Preempt", "internal/extender TestNominatedPodEvictsNoPodElsewhere"},
	{"schedplugin/nodes.go", "planned != nil {", "false && planned != nil {", "schedplugin TestNominatedPodKeepsItsGPU"},
	{"schedplugin/claims.go", "c.engine.CountNominated(c.view, c.pod, node)", "node", "schedplugin TestNominatedPodKeepsItsGPU"},
	{"schedplugin/claims.go", "Node: c.engine.CountNominated(view, pod, node)", "Node: node", "schedplugin TestNominatedPodKeepsItsGPU"},

	// What the View shows of the events of the watch, and what is reused.
	{"internal/cluster/state.go", "next, e := s.assumed[pod.UID].Watch(pod)\n\ts.apply(pod.UID, next, e)", "next, _ := s.assumed[pod.UID].Watch(pod)\n\ts.apply(pod.UID, next, assumption.AsWatched)", "internal/cluster TestAssumption"},
	{"internal/cluster/state.go", "named != nil && named.UID == pod.UID {", "named != nil {", "internal/cluster TestPodsConvergeToTheAPIServer"},
	{"internal/cluster/state.go", "\ts.claimsEnd(pod.UID, true)\n\ts.requestPublish()\n", "\ts.claimsEnd(pod.UID, true)\n", "internal/cluster TestEachChangeIsPublished"},
	{"internal/cluster/state.go", "\ts.builder.DeleteNode(node.Name)\n\ts.requestPublish()\n", "\ts.builder.DeleteNode(node.Name)\n", "internal/cluster TestEachChangeIsPublished"},
	{"internal/cluster/state.go", "\ts.requestPublish()\n\ts.requestReread() // the others", "\ts.requestReread() // the others", "internal/cluster TestEachChangeIsPublished"},
	{"internal/cluster/state.go", "\ts.builder.DeleteSignal(name)\n\ts.requestPublish()\n", "\ts.builder.DeleteSignal(name)\n", "internal/cluster TestEachChangeIsPublished"},
	{"snapshot/node.go", "!Ended(pod) && !slices.ContainsFunc(pods, func", "!Ended(pod) && !slices.ContainsFunc(n.Pods, func", "snapshot TestWith"},
	{"snapshot/node.go", "p.UID == pod.UID }) {", "p == pod }) {", "snapshot TestWith"},
	{"snapshot/node.go", "\trest := n.holding(pods)\n", "\trest := n.holding(n.Pods)\n", "snapshot TestWithout"},
	{"snapshot/node.go", "l.Without(func(uid types.UID) bool { return gone[uid] })", "l", "snapshot TestNodeWithoutPodsIsWithoutTheirClaims"},
	{"snapshot/node.go", "pods := slices.Clip(n.Pods)", "pods := n.Pods", "snapshot TestPodFactsFollowTheirPods"},
	{"snapshot/node.go", "version: versions.Add(1)", "version: n.version", "snapshot TestViewsOfManyNodesStay"},
	{"snapshot/node.go", "rest.Ledgers = slices.Clone(n.Ledgers)", "rest.Ledgers = n.Ledgers", "snapshot TestNodeWithoutPodsIsWithoutTheirClaims"},
	{"internal/extender/shared.go", `	select {
	case h.Shared.admission <- struct{}{}:
		defer func() { <-h.Shared.admission }()
	case <-ctx.Done():
		return target, nil, fmt.Errorf("waiting for other pods to be admitted: %w", context.Cause(ctx))
	}
	view, err := h.view(pod.UID)
	if err != nil {
		return target, nil, err
	}
`, `	view, err := h.view(pod.UID)
	if err != nil {
		return target, nil, err
	}
	select {
	case h.Shared.admission <- struct{}{}:
		defer func() { <-h.Shared.admission }()
	case <-ctx.Done():
		return target, nil, fmt.Errorf("waiting for other pods to be admitted: %w", context.Cause(ctx))
	}
`, "internal/extender TestBindCountsThePodAdmittedBefore"},
	{"internal/extender/shared.go", "if len(c.result.Rejected) > 0 {", "if false {", "internal/extender TestBindCountsPodsBoundMeanwhile"},
	{"internal/extender/shared.go", "Node: h.Engine.CountNominated(view, pod, node)", "Node: node", "internal/extender TestReserveLeavesNominatedPodsTheirGPU"},
	{"internal/extender/prescore.go", "bytes.Equal(s.body, c.body) })", "len(s.body) == len(c.body) })", "internal/extender TestPrioritizeUsesTheViewOfFilter"},
	{"internal/extender/prescore.go", "s.scores, c.result.Scores = c.result.Scores, s.scores // reuse the memory of both", "s.scores = c.result.Scores", "internal/extender TestRecordOfPrescoredCall"},
	{"internal/extender/prescore.go", "\ts.scores, c.result.Scores = c.result.Scores, s.scores\n\treturn true", "\treturn true", "internal/extender TestRecordOfPrescoredCall"},
	{"internal/extender/prescore.go", "\ts.body = s.body[:0]\n", "", "internal/extender TestPrioritizeUsesTheViewOfFilter"},
	{"internal/extender/prescore.go", "!isSubset(node.Pods, before.Pods) && bytes", "!isSubset(before.Pods, node.Pods) && bytes", "internal/extender TestPrioritizeUsesTheViewOfFilter"},
}
