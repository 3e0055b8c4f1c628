"""The reasons that docs/operations.md explains: in the metrics each is a series, so that no other one may be. Pure."""

from __future__ import annotations

from typing import Final

_WORDS: Final = """
    APIFailed APIRefused APIUnreachable Accepted AcceptedByUser AccountMissing AddressRefused AdmissionDenied
    AdmissionUnavailable AdvertisementMissing AgentSilent AllFailed AlreadyMoving AlreadyThere AmbiguousName Asked
    BadAnswer BadCIDR BadCredential BadEndpoint BadExport BadField BadGrant BadKey BadMTU BadName BadNamespace
    BadQuantity BadRecord BadResource BlockNotKnown BlockSplitsPods BlockVolume BorrowingQuotaExceeded BothAgreed
    BothCan ByHome CIDRForbidden CIDROverlap CIDRTooNarrow CIDRTooWide CachesIncomplete CannotAdmit CannotSend
    CertificateExpired CertificateExpiring CertificateUnreadable ChainTooLong ClaimGone ClaimTaken ClassLimit
    ClassNotOffered ClockSkew ClusterDomainChanged ClusterIDRepetition ClusterIDTooLong ClusterNotSelected
    ClusterSelected ConnectionLost ContainerStatusUnknown CopyGone Cordoned CreatedPod CredentialMalformed
    CredentialMissing CredentialPresent CredentialRejected CredentialsRefused DaemonFailed DaemonSilent DecisionPending
    DefinitionNotServed DefinitionsMissing DeletionsHeld DirectOff DiskFull Draining Duplicate EgressDenied
    EgressNotBounded Ended
    EndedByLender EndedThere EndpointNotExported Expired FamilyCut FewerStreams FileUnreadable Forbidden
    ForwardingOff Found FrameLength HandshakeFailed HandshakeTimeout HomeFirst HomeWentBack HostLacks
    IdentityUnusable Ignored ImageMissing InProgress InUse Incoming Incomplete Internal
    InvalidClusterID InvalidName InvalidOffer
    InvalidPod InvalidPolicy JobFailed KeptFromBefore KeyInUse KeyNotOnDevice KeyNotProven KeyPinned KeyRevoked
    KeyRotated KeyTypeRefused KubeconfigUnusable LabelNotCarried LabelsDoNotMatch LaterRelease LeaderUnknown
    LenderAnswers LenderReady LenderUnknown LenderUnreachable LimitReached Limited LimitsShown LocalRouteMissing
    ManagedElsewhere MissingAtHome NameNotYours NameReserved NameTaken NamesMissing NamesNotAnswered NamesSilent
    NamespaceCreated NamespaceNotOffloaded NamespacePending NamespaceTaken NamespaceTerminating NamespacesWaiting
    NearlyFull NegativeAmount NetworkDown NetworkFailing NetworkReady NetworkUndone NoAddress NoAnswer NoCertificate
    NoClusterSelected NoCommonMinor NoCommonProtocol NoCommonWay NoDaemon NoExternalAddress NoHandshake NoNamePort
    NoNameService NoNamespaces NoNetworkAgent NoOffer NoPodNetwork NoPodYet NoRoom NoService NoSession NoStreams
    NoTunnel NoTunnelToHome NodeAPIUnreachable NodeLost NodeMissing NodeNameTaken NodeRefused NodeWithoutStorage
    NotABorrower NotADomain NotALender NotAPair NotAPeer NotAllowed NotAnEvent NotAsked NotBorrowing NotBound
    NotConfirmed NotContacted NotConverged NotDetailed NotEnabled NotExamined NotExported NotExportedYet
    NotGranted NotItsNetworks NotKept NotLedByLender NotLending NotLent NotLimited NotListening NotMoving
    NotMsgpack NotNeeded NotOffered NotReached NotReady NotReflected NotTLS NotTrusted NotWhole NotYours
    NothingAsked NothingHeld OfferExceeded OfferExpired OfferInvalid OfferPending OfferReceived OfferRefused
    OfferWithdrawn Offered OffloadingAborted OffloadingBackOff OffloadingNotAdmitted OlderKubernetes
    OriginMismatch Orphaned
    OtherClass OtherCluster OtherKey OtherRecords OtherRelease OutOfOrder OutOfSight OutsideHours
    OwnNetworksUnknown PacketLoss PacketsCross PairInUse PartlyResolved PatchContradicts PathMTUReduced
    PeerClockAhead PeerForwardingOff PeerHasNone PeerInvalid PeerNotReady PeerOlder PeerSilent PeerTooOld PeerUnknown
    PeerUnreachable PeeringDisabled PodPathCut PodRefused PodSecurity PodUnplaced PodWaiting PoliciesNotEnforced
    PoliciesUnknown PolicyNotApplied PoolExhausted PortClosed PortTaken ProbesLost Probing
    ProvisioningFailed QuotaExceeded
    ReactorTime ReadinessGatesNotReady Reclaimed Reclaiming Reflecting RefusedByPeer RefusedByUser
    RelayApiUnauthorized RelayApiUnreachable RelayBadAnswer RelayBadRequest RelayBytes RelayDenied RelayForbidden
    RelayIdentityClaimed RelayRequests RelayTooManyConnections RelayUnknownKey RemoteApiError RemoteForbidden
    RemoteInvalid RemoteNameInUse RemoteNameTaken RemoteNotFound RemotePodMissing RemotePodPending
    RemotePodTerminated RequestNotSent ResourceQuota Return ReturningHome RightsMissing RulesMissing
    ScrapeForbidden ScrapeNotReviewed ScrapeUnauthorized SeenByBorrower Self ServiceAccountTokenRefused
    ServiceRefused ServicesNotSeen SessionBroken SessionEstablished SignatureRefused SizesLost SliceRefused
    SlowReader SomeFailed StaleOffer StandbySilent Starting StatusBytes StatusesDelayed Stopping StorageNotOffered
    StrategyContradicts StreamNotAsked StreamStranger StreamUnknownKey StreamWithoutSession Streams TakenBack
    TenantFull TokenExpired TokenExpiring
    TokenMissing TokenRefused TokenWithoutEnd TooDeep TooExpensive TooFast TooLarge
    TooLate TooMany TooManyConnections TooManyDomains TooManyFromAddress TooManyHalfOpen TooManyHandshakes
    TooManyHosts TooManyNames TooManyNamespaces TooManyNetworks TooManyPeers TooManyPods TooManyPolicies
    TooManyRequests TooManyResources TooManyReviews TooManyRules TooManySessions TooManySlices TooManyStreams
    TooManyTerms TooManyUntrusted TooMuch TooMuchPending TrustPending TrustWithdrawn Tunnel TunnelDown
    TunnelSilent Undecided UnexpectedIdentity UnexpectedKey Unknown UnknownClass Unpeered UnpeeredByPeer Unpeering
    Unreachable UnreadableObject Unresponsive UpdateRefused WaitingForLender WaitingForPeer WaitingForPeerTrust
    WebhookNotConfigured WebhookUnreachable WelcomeDiffers Withdrawn WithdrawnByBorrower WrittenBytes
"""
_KNOWN: Final = frozenset(_WORDS.split())


def shown_code(code: str) -> str:
    """Return the code of a problem, ``Other`` for a word that a peer made up or another release has."""
    return code if code in _KNOWN else "Other"
